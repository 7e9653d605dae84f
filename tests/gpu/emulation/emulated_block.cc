#include "tests/gpu/emulation/emulated_block.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace specd {

namespace {

namespace context = boost::context;

constexpr int32_t kWarpSize = 32;
constexpr size_t kStackBytes = 256 * 1024;  // sanitizers widen frames several times
// Blocks of a launch that are under way at the same time, and threads of all of them.
constexpr uint64_t kResidentBlocksMax = 4;
constexpr int32_t kResidentThreadsMax = 2048;

// Thrown out of a waiting thread when the block stops early, so that its fiber ends by itself.
struct BlockStopped {};

enum class Waiting { kNothing, kShuffle, kBallot, kLargest, kSum, kBarrier, kFinished };

const char* NameOf(Waiting waiting) {
  switch (waiting) {
    case Waiting::kNothing:
      return "running";
    case Waiting::kShuffle:
      return "at a shuffle";
    case Waiting::kBallot:
      return "at a ballot";
    case Waiting::kLargest:
      return "at a maximum";
    case Waiting::kSum:
      return "at a sum";
    case Waiting::kBarrier:
      return "at a barrier";
    case Waiting::kFinished:
      return "finished";
  }
  return "?";
}

// A thread of the block: a fiber that runs one job after another and never ends. Fibers are kept
// for the life of the process, since making them costs far more than a small block's work.
struct ThreadState {
  context::stack_context stack;
  context::fiber fiber;      // the thread, seen from the scheduler
  context::fiber scheduler;  // the scheduler, seen from the thread
  EmulatedBlock* block = nullptr;
  Waiting waiting = Waiting::kFinished;
  uint32_t value = 0;   // what the thread brings to a shuffle or ballot
  int32_t source = 0;   // whose value it wants
  uint32_t result = 0;  // what it gets
  [[maybe_unused]] void* tsan_fiber = nullptr;
};

// The stack that fibers give way to, as sanitizers know it.
[[maybe_unused]] const void* scheduler_stack = nullptr;
[[maybe_unused]] size_t scheduler_stack_bytes = 0;
[[maybe_unused]] void* scheduler_tsan_fiber = nullptr;

// Goes from the scheduler to a thread, and comes back when it gives way. The sanitizer calls stand
// here and in Yield themselves: TSAN keeps a call stack for each fiber, and a function of their own
// would be entered on one and left on another.
void Resume(ThreadState* thread) {
#if defined(__SANITIZE_ADDRESS__)
  void* state = nullptr;
  __sanitizer_start_switch_fiber(&state, static_cast<char*>(thread->stack.sp) - thread->stack.size,
                                 thread->stack.size);
#elif defined(__SANITIZE_THREAD__)
  scheduler_tsan_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(thread->tsan_fiber, 0);
#endif
  thread->fiber = std::move(thread->fiber).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(state, nullptr, nullptr);
#endif
}

// Goes from a thread to the scheduler, and comes back when the thread is resumed.
void Yield(ThreadState* thread) {
#if defined(__SANITIZE_ADDRESS__)
  void* state = nullptr;
  __sanitizer_start_switch_fiber(&state, scheduler_stack, scheduler_stack_bytes);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(scheduler_tsan_fiber, 0);
#endif
  thread->scheduler = std::move(thread->scheduler).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(state, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

}  // namespace

class EmulatedBlock {
 public:
  // Takes the threads of the process from `first_thread` on.
  EmulatedBlock(const EmulationOptions& options, int32_t first_thread,
                const std::function<void(EmulatedThread)>& body)
      : threads_(ThreadsOfProcess(first_thread + options.num_threads)),
        first_thread_(first_thread),
        num_threads_(options.num_threads),
        block_(options.block),
        num_blocks_(options.num_blocks),
        shared_(num_threads_ / kWarpSize),
        random_(options.schedule_seed),
        body_(body) {
    std::memset(shared_.data(), kPoison, shared_.size() * sizeof(WarpMemory));
    for (int32_t i = 0; i < num_threads_; ++i) {
      SPECD_CHECK(ThreadAt(i).block == nullptr);
      ThreadAt(i).block = this;
      ThreadAt(i).waiting = Waiting::kNothing;
    }
  }
  EmulatedBlock(const EmulatedBlock&) = delete;
  EmulatedBlock& operator=(const EmulatedBlock&) = delete;
  ~EmulatedBlock() {
    stopped_ = true;
    for (int32_t i = 0; i < num_threads_; ++i) {
      if (ThreadAt(i).waiting != Waiting::kFinished) Resume(&ThreadAt(i));
      ThreadAt(i).block = nullptr;
    }
  }

  // Continues with one warp, or past a barrier. False if the block is done, or cannot continue.
  bool GoOn() { return error_.empty() && Step(); }
  const std::string& error() const { return error_; }

  int32_t num_warps() const { return num_threads_ / kWarpSize; }
  int32_t block() const { return block_; }
  int32_t num_blocks() const { return num_blocks_; }
  void* SharedOf(int32_t warp) { return shared_[warp].bytes; }

  // Called on a thread's own stack: gives way until the scheduler has an answer.
  uint32_t Wait(int32_t index, Waiting waiting, uint32_t value, int32_t source) {
    ThreadState& thread = ThreadAt(index);
    thread.waiting = waiting;
    thread.value = value;
    thread.source = source;
    Yield(&thread);
    if (stopped_) throw BlockStopped();
    return thread.result;
  }

 private:
  struct WarpMemory {
    alignas(16) unsigned char bytes[EmulatedThread::kSharedBytes];
  };

  // At least `count` threads; they stay where they are for ever.
  static const std::vector<ThreadState*>& ThreadsOfProcess(int32_t count) {
    static auto* const threads = new std::vector<ThreadState*>();
    while (static_cast<int32_t>(threads->size()) < count) {
      threads->push_back(NewThread(static_cast<int32_t>(threads->size())));
    }
    return *threads;
  }

  static ThreadState* NewThread(int32_t index) {
    auto* const thread = new ThreadState();
    context::fixedsize_stack allocator(kStackBytes);
    thread->stack = allocator.allocate();
#if defined(__SANITIZE_THREAD__)
    thread->tsan_fiber = __tsan_create_fiber(0);
#endif
    const context::preallocated place(thread->stack.sp, thread->stack.size, thread->stack);
    thread->fiber = context::fiber(
        std::allocator_arg, place, allocator, [=](context::fiber&& scheduler) -> context::fiber {
          thread->scheduler = std::move(scheduler);
#if defined(__SANITIZE_ADDRESS__)
          __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#endif
          for (;;) {
            thread->block->RunBody(index);
            thread->waiting = Waiting::kFinished;
            Yield(thread);
          }
        });
    return thread;
  }

  // One job of thread `index` of the process, on its own stack.
  void RunBody(int32_t index) {
    try {
      if (!stopped_) body_(EmulatedThread(this, index - first_thread_));
    } catch (const BlockStopped&) {
    }
  }

  // One warp continues to its next shuffle or ballot, or through several of them.
  bool Step() {
    std::vector<int32_t> ready;
    for (int32_t w = 0; w < num_warps(); ++w) {
      if (Of(w, 0).waiting == Waiting::kNothing) ready.push_back(w);
    }
    if (ready.empty()) return ReleaseBarrier();
    const int32_t warp = ready[random_() % ready.size()];
    // Uneven speeds, often up to the next barrier, find values that were read too early.
    int64_t collectives = int64_t{1} << (random_() % 12);
    do {
      RunWarp(warp);
    } while (Answer(warp) && --collectives > 0);
    return true;
  }

  ThreadState& ThreadAt(int32_t index) const { return *threads_[first_thread_ + index]; }
  ThreadState& Of(int32_t warp, int32_t lane) const { return ThreadAt(warp * kWarpSize + lane); }

  void RunWarp(int32_t warp) {
    int32_t order[kWarpSize];
    for (int32_t lane = 0; lane < kWarpSize; ++lane) order[lane] = lane;
    std::shuffle(order, order + kWarpSize, random_);
    for (const int32_t lane : order) Resume(&Of(warp, lane));
  }

  // Completes a shuffle, a ballot, a maximum or a sum; true if the warp can continue.
  bool Answer(int32_t warp) {
    const Waiting waiting = Of(warp, 0).waiting;
    uint32_t ballot = 0;
    uint32_t sum = 0;
    auto largest = static_cast<int32_t>(Of(warp, 0).value);
    for (int32_t lane = 0; lane < kWarpSize; ++lane) {
      const ThreadState& thread = Of(warp, lane);
      ballot |= (thread.value != 0 ? 1u : 0u) << lane;
      sum += thread.value;
      largest = std::max(largest, static_cast<int32_t>(thread.value));
      if (thread.waiting == waiting) continue;
      error_ = fmt::format("warp {}: lane 0 is {} while lane {} is {}", warp, NameOf(waiting), lane,
                           NameOf(thread.waiting));
      return false;
    }
    if (waiting == Waiting::kBarrier || waiting == Waiting::kFinished) return false;
    for (int32_t lane = 0; lane < kWarpSize; ++lane) {
      ThreadState& thread = Of(warp, lane);
      if (waiting == Waiting::kShuffle && (thread.source < 0 || thread.source >= kWarpSize)) {
        error_ = fmt::format("warp {}: lane {} asks for lane {}", warp, lane, thread.source);
        return false;
      }
      thread.result = waiting == Waiting::kBallot    ? ballot
                      : waiting == Waiting::kLargest ? static_cast<uint32_t>(largest)
                      : waiting == Waiting::kSum     ? sum
                                                     : Of(warp, thread.source).value;
    }
    for (int32_t lane = 0; lane < kWarpSize; ++lane) Of(warp, lane).waiting = Waiting::kNothing;
    return true;
  }

  // All threads wait or have finished. False if the block is done or cannot continue.
  bool ReleaseBarrier() {
    int32_t finished = 0;
    for (int32_t i = 0; i < num_threads_; ++i) {
      finished += ThreadAt(i).waiting == Waiting::kFinished ? 1 : 0;
    }
    if (finished == num_threads_) return false;
    if (finished > 0) {
      error_ = fmt::format("{} of {} threads finished while the others are at a barrier", finished,
                           num_threads_);
      return false;
    }
    for (int32_t i = 0; i < num_threads_; ++i) ThreadAt(i).waiting = Waiting::kNothing;
    return true;
  }

  const std::vector<ThreadState*>& threads_;  // of the process
  const int32_t first_thread_;
  const int32_t num_threads_;
  const int32_t block_;
  const int32_t num_blocks_;
  std::vector<WarpMemory> shared_;
  std::mt19937_64 random_;
  const std::function<void(EmulatedThread)>& body_;
  std::string error_;
  bool stopped_ = false;
};

int32_t EmulatedThread::num_warps() const { return block_->num_warps(); }

int32_t EmulatedThread::block() const { return block_->block(); }

int32_t EmulatedThread::num_blocks() const { return block_->num_blocks(); }

uint32_t EmulatedThread::Shuffle(uint32_t value, int32_t source) const {
  return block_->Wait(index_, Waiting::kShuffle, value, source);
}

uint32_t EmulatedThread::Ballot(bool predicate) const {
  return block_->Wait(index_, Waiting::kBallot, predicate ? 1 : 0, 0);
}

void EmulatedThread::Sync() const { block_->Wait(index_, Waiting::kBarrier, 0, 0); }

int32_t EmulatedThread::LargestOfWarp(int32_t value) const {
  return static_cast<int32_t>(
      block_->Wait(index_, Waiting::kLargest, static_cast<uint32_t>(value), 0));
}

uint32_t EmulatedThread::SumOfWarp(uint32_t value) const {
  return block_->Wait(index_, Waiting::kSum, value, 0);
}

void EmulatedThread::SyncWarp() const { Ballot(true); }

void* EmulatedThread::SharedMemory() const { return block_->SharedOf(warp()); }

int32_t EmulatedThread::Take(int32_t* counter, int32_t num) const {
  int32_t before = 0;
  if (lane() == 0) {
    before = (*counter)++;
    if (*counter == num) *counter = 0;
  }
  return static_cast<int32_t>(Shuffle(static_cast<uint32_t>(before), 0));
}

bool EmulatedThread::IsLastToArrive(int32_t* counter, int32_t num_arrivals) const {
  SyncWarp();
  bool is_last = false;
  if (lane() == 0) {
    is_last = ++*counter == num_arrivals;
    if (is_last) *counter = 0;
  }
  return Ballot(is_last) != 0;
}

std::string RunEmulatedBlocks(const EmulationOptions& options,
                              const std::function<void(EmulatedThread)>& body) {
  SPECD_CHECK(options.num_threads > 0 && options.num_threads % kWarpSize == 0);
  std::mt19937_64 random(options.schedule_seed);
  std::vector<int32_t> waiting(options.num_blocks);
  std::iota(waiting.begin(), waiting.end(), 0);
  std::shuffle(waiting.begin(), waiting.end(), random);
  // A device has room for some blocks; the others start as these end.
  const auto drawn = static_cast<int32_t>(1 + random() % kResidentBlocksMax);
  const int32_t room = std::max(kResidentThreadsMax / options.num_threads, 1);
  std::vector<std::unique_ptr<EmulatedBlock>> resident(std::min(drawn, room));
  const auto start = [&](size_t place) {
    resident[place] = nullptr;
    if (waiting.empty()) return;
    EmulationOptions one = options;
    one.block = waiting.back();
    one.schedule_seed = random();
    waiting.pop_back();
    resident[place] = std::make_unique<EmulatedBlock>(
        one, static_cast<int32_t>(place) * options.num_threads, body);
  };
  for (size_t place = 0; place < resident.size(); ++place) start(place);
  while (true) {
    std::vector<size_t> running;
    for (size_t place = 0; place < resident.size(); ++place) {
      if (resident[place] != nullptr) running.push_back(place);
    }
    if (running.empty()) return "";
    const size_t place = running[random() % running.size()];
    // As uneven as the warps of a block, and often to the end.
    int64_t steps = int64_t{1} << (random() % 10);
    bool goes_on = true;
    while (goes_on && --steps >= 0) goes_on = resident[place]->GoOn();
    if (goes_on) continue;
    const EmulatedBlock& block = *resident[place];
    if (!block.error().empty()) return fmt::format("block {}: {}", block.block(), block.error());
    start(place);
  }
}

std::string RunEmulatedBlock(const EmulationOptions& options,
                             const std::function<void(EmulatedThread)>& body) {
  SPECD_CHECK(options.num_threads > 0 && options.num_threads % kWarpSize == 0);
  EmulatedBlock block(options, 0, body);
  while (block.GoOn()) {
  }
  return block.error();
}

}  // namespace specd
