#include "speculative/grammar/masks/mask_pool.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace specd::grammar {

bool MaskPool::Batch::DoNext() {
  const size_t item = next.fetch_add(1, std::memory_order_relaxed);
  if (item >= num_items) return false;
  try {
    work(item);
  } catch (...) {  // out of memory; it belongs to the caller of Share
    const std::lock_guard lock(mutex);
    if (failure == nullptr) failure = std::current_exception();
  }
  return true;
}

// Threads that sleep until a batch has work for them.
class MaskPool::Crew {
 public:
  Crew() = default;
  ~Crew() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  pid_t pid() const { return pid_; }

  // Wakes up to num_helpers threads. Returns false if another batch has them.
  bool Join(Batch* batch, size_t num_helpers) {
    const std::lock_guard lock(mutex_);
    if (batch_ != nullptr) return false;
    Grow(num_helpers);
    batch_ = batch;
    num_wanted_ = std::min(num_helpers, threads_.size());
    for (size_t i = 0; i < num_wanted_; ++i) changed_.notify_one();
    return true;
  }

  // Makes the threads for batches of this many helpers.
  void Prepare(size_t num_helpers) {
    const std::lock_guard lock(mutex_);
    Grow(num_helpers);
  }

  // Returns when no thread works on the batch any more. A thread that wakes later finds no batch.
  void Leave() {
    std::unique_lock lock(mutex_);
    num_wanted_ = 0;
    left_.wait(lock, [this] { return num_busy_ == 0; });
    batch_ = nullptr;
  }

 private:
  // A system that has no more threads gives less help.
  void Grow(size_t num_threads) {
    try {
      while (threads_.size() < num_threads) threads_.emplace_back([this] { Main(); });
    } catch (const std::system_error&) {
    }
  }

  void Main() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return is_ending_ || num_wanted_ > 0; });
      if (is_ending_) return;
      --num_wanted_;
      ++num_busy_;
      Batch& batch = *batch_;
      lock.unlock();
      while (batch.DoNext()) {
      }
      lock.lock();
      if (--num_busy_ == 0) left_.notify_one();
    }
  }

  const pid_t pid_ = ::getpid();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable left_;  // awaited by the batch's caller alone
  std::vector<std::thread> threads_;
  Batch* batch_ = nullptr;
  size_t num_wanted_ = 0;
  size_t num_busy_ = 0;
  bool is_ending_ = false;
};

MaskPool::MaskPool(NowNs now_ns) : now_ns_(std::move(now_ns)) {}

// A process that was forked has none of its parent's threads, and could not join them.
MaskPool::~MaskPool() {
  if (crew_ != nullptr && crew_->pid() != ::getpid()) static_cast<void>(crew_.release());
}

MaskPool::Crew* MaskPool::FindCrew() {
  const std::lock_guard lock(mutex_);
  if (crew_ == nullptr) crew_ = std::make_unique<Crew>();
  return crew_->pid() == ::getpid() ? crew_.get() : nullptr;
}

void MaskPool::Start(int32_t num_threads) {
  if (num_threads <= 1) return;
  if (Crew* crew = FindCrew(); crew != nullptr) crew->Prepare(static_cast<size_t>(num_threads - 1));
}

void MaskPool::Share(size_t num_items, int32_t num_threads, Work work) {
  Batch batch(num_items, work);
  const int64_t begin_ns = now_ns_();
  Crew* crew = nullptr;
  bool may_ask = num_threads > 1;
  while (batch.DoNext()) {
    if (!may_ask || now_ns_() - begin_ns < kAloneNs) continue;
    may_ask = false;
    const size_t num_begun = std::min(num_items, batch.next.load(std::memory_order_relaxed));
    if (num_items - num_begun < 2) continue;  // this thread does the last one
    const size_t num_helpers =
        std::min(num_items - num_begun - 1, static_cast<size_t>(num_threads - 1));
    crew = FindCrew();
    if (crew != nullptr && !crew->Join(&batch, num_helpers)) crew = nullptr;
  }
  if (crew != nullptr) crew->Leave();
  if (batch.failure != nullptr) std::rethrow_exception(batch.failure);
}

}  // namespace specd::grammar
