// Mutex and MutexLock add Abseil's thread annotations to std::mutex.
//
// absl::Mutex would do, but Debian ships it compiled without ThreadSanitizer. ThreadSanitizer then
// does not see the order that the mutex makes, and reports races that are not there. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace specd {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (mutex_.try_lock()) return;
    num_waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    num_waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  // True while a thread waits for the lock. A thread that takes the lock again and again looks here
  // and lets others go first, because std::mutex does not. Relaxed: it only gives a hint.
  bool IsWanted() const { return num_waiting_.load(std::memory_order_relaxed) > 0; }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  // False if another thread holds the lock. Tests ask whether code holds it.
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  // Tells the analysis a fact that it cannot see: the caller of this lambda holds the lock.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  std::mutex mutex_;
  std::atomic<int32_t> num_waiting_{0};
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

}  // namespace specd
