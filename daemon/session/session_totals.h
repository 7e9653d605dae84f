// SessionTotals adds up the counters of ended sessions for the daemon.
//
// Each session adds its counters once, at its end. Threads may call at the same time.
#pragma once

#include "absl/base/thread_annotations.h"
#include "daemon/base/mutex.h"
#include "kernels/core/counters.h"

namespace specd {

class SessionTotals {
 public:
  void Add(const Counters& of_session) {
    MutexLock lock(&mutex_);
    sums_ += of_session;
  }
  Counters Read() const {
    MutexLock lock(&mutex_);
    return sums_;
  }

 private:
  mutable Mutex mutex_;
  Counters sums_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specd
