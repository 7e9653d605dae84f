#include "tests/gpu/driver/fake_gpu_queue.h"

#include <utility>

namespace specd {

FakeGpuQueue::FakeGpuQueue(uint64_t seed)
    : random_(static_cast<uint32_t>(seed)), thread_([this] { Run(); }) {}

FakeGpuQueue::~FakeGpuQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t FakeGpuQueue::Push(std::function<void()> work) {
  return PushWait([work = std::move(work)] {
    work();
    return true;
  });
}

uint64_t FakeGpuQueue::PushWait(std::function<bool()> is_there) {
  std::lock_guard<std::mutex> lock(mutex_);
  work_.push_back(std::move(is_there));
  changed_.notify_all();
  return ++pushed_;
}

bool FakeGpuQueue::IsDone(uint64_t ticket) {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ >= ticket;
}

void FakeGpuQueue::Await(uint64_t ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket || stopping_; });
}

bool FakeGpuQueue::IsHeld() {
  std::lock_guard<std::mutex> lock(mutex_);
  return held_;
}

void FakeGpuQueue::Dawdle() {
  for (uint32_t i = random_() % 8; i > 0; --i) std::this_thread::yield();
}

void FakeGpuQueue::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !work_.empty(); });
    if (stopping_) return;
    const std::function<bool()> work = std::move(work_.front());
    work_.pop_front();
    bool is_done = false;
    while (!is_done) {
      lock.unlock();
      Dawdle();
      is_done = work();
      // A word that another process or a plain store changes rings no bell.
      if (!is_done) std::this_thread::yield();
      lock.lock();
      held_ = !is_done;
      if (stopping_) return;
    }
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace specd
