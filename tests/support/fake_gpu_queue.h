// One of a pretended GPU's hardware queues: a thread that does what it is given in order, and stops
// at a wait until the word is there.
//
// Streams are laid onto queues, so a wait that is never released holds up every stream of its
// queue, as on a device. Any thread may call. The destructor abandons what is not done, waits
// included, as the end of a process does.
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
  // Between two pieces of work the thread dawdles for a while that follows from the seed.
  explicit FakeGpuQueue(uint64_t seed);
  ~FakeGpuQueue();
  FakeGpuQueue(const FakeGpuQueue&) = delete;
  FakeGpuQueue& operator=(const FakeGpuQueue&) = delete;

  // Returns the ticket of the work: queue-wide numbers from 1 on.
  uint64_t Push(std::function<void()> work);
  // Work that is done once `is_there` says so; it is asked again and again.
  uint64_t PushWait(std::function<bool()> is_there);

  bool IsDone(uint64_t ticket);
  void Await(uint64_t ticket);
  // Has what comes next been asked, and is not there?
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
  std::minstd_rand random_;  // of the thread
  std::thread thread_;
};

}  // namespace specd
