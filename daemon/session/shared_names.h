// SharedNames gives out the names that are unique over all sessions of a process: request ids of
// open streams, and stream numbers. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "daemon/base/mutex.h"

namespace specd {

class SharedNames {
 public:
  // False if the name is in use. A sequence without a stream may have no name.
  bool Claim(const std::string& request_id) {
    if (request_id.empty()) return true;
    MutexLock lock(&mutex_);
    return in_use_.insert(request_id).second;
  }

  void Release(const std::string& request_id) {
    MutexLock lock(&mutex_);
    in_use_.erase(request_id);
  }

  // Never repeats. Relaxed, because the number orders nothing.
  uint64_t NextStream() { return next_stream_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> next_stream_{1};
  Mutex mutex_;
  // A claim that finds no memory changes nothing: unordered_set promises that, flat_hash_set does
  // not and keeps a cell without a string.
  std::unordered_set<std::string> in_use_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specd
