// The two steps of an opening: the memory of a prompt is none of the lock's business, and an
// opening that finds no memory leaves nothing.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/session/session_sequences.h"
#include "tests/support/eventually.h"
#include "tests/support/session_fixture.h"
#include "tests/support/watched_memory.h"

namespace specd {
namespace {

constexpr SessionLimits kLimits = SessionFixture::kLimits;
constexpr size_t kLongPrompt = size_t{1} << 20;  // as long as an opening's lists may be
// A name that a string cannot hold in itself, so that claiming it takes memory.
const std::string kName = "a request id that is longer than the room of a string";

// The sequences of a session, with a lock that a test can ask for.
struct OpenSequences {
  OpenSequences()
      : state(Options(), *Segment::Create(kLimits, {1, 77}),
              *Verifier::Create(ForVerifier(), std::make_unique<ScriptedBackend>())),
        sequences(&state) {
    state.events = std::make_unique<EventQueue>(EventQueue::Capacity{.events = 64, .tokens = 64});
  }

  SessionOptions Options() {
    SessionOptions options;
    options.limits = kLimits;
    options.profile = &profile;
    options.clock = &clock;
    options.names = &names;
    return options;
  }
  static VerifierOptions ForVerifier() {
    VerifierOptions options;
    options.limits.vocab_size = static_cast<int32_t>(kLimits.vocab_size);
    options.limits.max_batch = static_cast<int32_t>(kLimits.max_batch);
    options.limits.max_draft = static_cast<int32_t>(kLimits.max_draft);
    options.max_sequences = kLimits.max_sequences;
    return options;
  }

  ModelProfile profile;
  ManualClock clock;
  SharedNames names;
  SessionState state;
  SessionSequences sequences;
};

// Parameters for which a sequence keeps its prompt and counts it.
SequenceParams WithHistory(int64_t n) {
  SequenceParams params;
  params.n = n;
  params.max_tokens = 100;
  params.repetition_penalty = 1.5;
  params.no_repeat_ngram_size = 3;
  return params;
}

std::vector<TokenId> Prompt(size_t num_ids) {
  std::vector<TokenId> prompt;
  for (size_t i = 0; i < num_ids; ++i) {
    prompt.push_back(static_cast<TokenId>(i % kLimits.vocab_size));
  }
  return prompt;
}

// Adds up the bytes that this thread takes and gives back while it holds the lock, and without.
class LockWatcher final : public MemoryWatcher {
 public:
  explicit LockWatcher(Mutex* mutex) : mutex_(mutex) { memory_watcher = this; }
  ~LockWatcher() override { memory_watcher = nullptr; }

  void OnNew(size_t size_bytes) override { Add(size_bytes); }
  void OnDelete(size_t size_bytes) override { Add(size_bytes); }

  size_t locked_bytes = 0;
  size_t free_bytes = 0;

 private:
  void Add(size_t size_bytes) { (IsHeld() ? locked_bytes : free_bytes) += size_bytes; }

  bool IsHeld() {
    bool held = true;
    std::thread([this, &held] {  // a thread may not try a lock that it holds
      if (!mutex_->TryLock()) return;
      mutex_->Unlock();
      held = false;
    })
        .join();
    return held;
  }

  Mutex* const mutex_;
};

struct Bytes {
  size_t locked = 0;
  size_t free = 0;
};
Bytes BytesOf(const LockWatcher& watcher) { return {watcher.locked_bytes, watcher.free_bytes}; }

struct BytesOfLife {
  Bytes opening;
  Bytes closing;
  Bytes refusal;
};

// Counts bytes in two openings of two sequences each. The first opening succeeds. The second finds
// one free slot only, so it is refused.
BytesOfLife Measure(size_t num_prompt_ids) {
  const std::vector<TokenId> prompt = Prompt(num_prompt_ids);
  const SequenceParams params = WithHistory(2);
  OpenSequences open;
  BytesOfLife bytes;
  std::vector<SequenceInfo> infos;
  // The table of names is as large as it will be.
  const auto before = open.sequences.Open(kName, params, {});
  REQUIRE(before.ok());
  for (const SequenceInfo& info : *before) REQUIRE(open.sequences.Close(info.handle).ok());
  {
    LockWatcher watcher(&open.state.mutex);
    auto opened = open.sequences.Open(kName, params, {.prompt = prompt, .outputs = {}});
    bytes.opening = BytesOf(watcher);
    memory_watcher = nullptr;
    REQUIRE(opened.ok());
    infos = *opened;
  }
  {
    LockWatcher watcher(&open.state.mutex);
    const absl::Status closed = open.sequences.Close(infos[1].handle);
    bytes.closing = BytesOf(watcher);
    memory_watcher = nullptr;
    REQUIRE(closed.ok());
  }
  REQUIRE(open.sequences.Open("third", WithHistory(2), {}).ok());
  {
    LockWatcher watcher(&open.state.mutex);
    const bool refused =
        !open.sequences.Open("fourth", params, {.prompt = prompt, .outputs = {}}).ok();
    bytes.refusal = BytesOf(watcher);
    memory_watcher = nullptr;
    REQUIRE(refused);
  }
  return bytes;
}

TEST_SUITE("unit") {
  TEST_CASE("opening: the lock is not held for the memory of a prompt") {
    const BytesOfLife one = Measure(1);
    const BytesOfLife million = Measure(kLongPrompt);
    // malloc rounds the sizes of the few small blocks that are given back.
    constexpr size_t kRounding = 256;
    const size_t prompt_bytes = kLongPrompt * sizeof(TokenId);

    CHECK(one.opening.locked > 0);  // the names: the watcher knows when the lock is held
    CHECK(million.opening.locked <= one.opening.locked + kRounding);
    CHECK(million.opening.free >= one.opening.free + 2 * prompt_bytes);

    CHECK(million.closing.locked <= one.closing.locked + kRounding);
    CHECK(million.closing.free >= one.closing.free + prompt_bytes);

    CHECK(million.refusal.locked <= one.refusal.locked + kRounding);
    // They are taken and given back.
    CHECK(million.refusal.free >= one.refusal.free + 4 * prompt_bytes);
  }

  TEST_CASE("opening: the first step is done while another thread holds the lock") {
    struct Sum final : MemoryWatcher {
      void OnNew(size_t size_bytes) override { taken_bytes += size_bytes; }
      void OnDelete(size_t) override {}
      std::atomic<size_t> taken_bytes = 0;
    };
    const std::vector<TokenId> prompt = Prompt(kLongPrompt);
    const SequenceParams params = WithHistory(1);
    OpenSequences open;
    // The memory of the sequence itself. Its name and its event follow, before the lock.
    Sum built;
    memory_watcher = &built;
    const bool ok = open.state.opening.Build(params, {.prompt = prompt, .outputs = {}}).ok();
    memory_watcher = nullptr;
    REQUIRE(ok);
    REQUIRE(built.taken_bytes >= kLongPrompt * sizeof(TokenId));

    Sum opened;
    bool has_opened = false;
    open.state.mutex.Lock();
    std::thread opener([&] {
      memory_watcher = &opened;
      has_opened = open.sequences.Open(kName, params, {.prompt = prompt, .outputs = {}}).ok();
      memory_watcher = nullptr;
    });
    CHECK(Eventually([&] { return opened.taken_bytes > built.taken_bytes; }));
    open.state.mutex.Unlock();
    opener.join();
    CHECK(has_opened);
  }

  TEST_CASE("opening: without memory it leaves neither a slot nor a name") {
    // An opening that found no memory for its event left its slots and its names taken for good.
    SessionFixture f;
    SequenceParams params;
    params.stop_strings = {"a stop string that is longer than the room of a string"};
    const auto open = [&](int64_t n) {
      params.n = n;
      return f.session->OpenSequences(kName, params);
    };
    bool has_opened = false;
    int num_failed = 0;
    for (; !has_opened; ++num_failed) {
      CAPTURE(num_failed);
      REQUIRE(num_failed < 1000);
      std::vector<SequenceInfo> infos;
      allocations_left = num_failed;
      try {
        if (auto opened = open(2); opened.ok()) infos = *std::move(opened);
      } catch (const std::bad_alloc&) {
      }
      allocations_left = -1;
      has_opened = !infos.empty();
      // An event of an opening that failed would make a stream that never ends.
      CHECK(f.Events().size() == infos.size());
      for (const SequenceInfo& info : infos) REQUIRE(f.session->CloseSequence(info.handle).ok());
      // The names are free, and so are all slots.
      const auto next = open(kLimits.max_sequences);
      REQUIRE(next.ok());
      for (const SequenceInfo& info : *next) REQUIRE(f.session->CloseSequence(info.handle).ok());
      f.Events();
    }
    CHECK(num_failed > 10);  // each name, event and sequence takes memory
  }

  TEST_CASE("opening: a fork without memory leaves neither a slot nor a name") {
    SessionFixture f;
    const SequenceHandle source = f.Open("source");
    f.Events();
    bool has_forked = false;
    int num_failed = 0;
    for (; !has_forked; ++num_failed) {
      CAPTURE(num_failed);
      REQUIRE(num_failed < 1000);
      SequenceHandle fork = 0;
      allocations_left = num_failed;
      try {
        if (auto forked = f.session->ForkSequence(source, kName, 5); forked.ok()) {
          fork = forked->handle;
        }
      } catch (const std::bad_alloc&) {
      }
      allocations_left = -1;
      has_forked = fork != 0;
      CHECK(f.Events().size() == (has_forked ? 1 : 0));
      if (has_forked) REQUIRE(f.session->CloseSequence(fork).ok());
      SequenceParams params;
      params.n = kLimits.max_sequences - 1;
      const auto next = f.session->OpenSequences(kName, params);
      REQUIRE(next.ok());
      for (const SequenceInfo& info : *next) REQUIRE(f.session->CloseSequence(info.handle).ok());
      f.Events();
    }
    CHECK(num_failed > 2);
  }
}

}  // namespace
}  // namespace specd
