// FakeGpuQueue is one hardware queue of a fake GPU for tests. A thread does its work in order, and
// stops at a wait until the word is there.
//
// Several CUDA streams share a queue. A wait that is never released therefore holds every CUDA
// stream of its queue, as on a device. Any thread may call. The destructor abandons unfinished
// work, waits included, as the end of a process does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

namespace specd {

class FakeGpuQueue {
 public:
  // The thread pauses between two pieces of work; the seed decides how long.
  explicit FakeGpuQueue(uint64_t seed);
  ~FakeGpuQueue();
  FakeGpuQueue(const FakeGpuQueue&) = delete;
  FakeGpuQueue& operator=(const FakeGpuQueue&) = delete;

  // Returns the ticket of the work. Tickets count from 1 for the whole queue.
  uint64_t Push(std::function<void()> work);
  // Work that is done once `is_there` returns true; the queue calls it repeatedly.
  uint64_t PushWait(std::function<bool()> is_there);

  bool IsDone(uint64_t ticket);
  void Await(uint64_t ticket);
  // Whether the next piece of work was asked and is not there.
  bool IsHeld();

 private:
  void Run();
  void Dawdle();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<bool()>> work_;
  uint64_t pushed_ = 0;
  uint64_t done_ = 0;
  bool held_ = false;
  bool stopping_ = false;
  std::minstd_rand random_;  // used by the thread
  std::thread thread_;
};

}  // namespace specd
