// OpeningRate bounds how many sequences one engine opens in a second, and counts them.
//
// An engine may open as many as it has saved up, at most those of a second. Openings are counted
// after they were made, so one message may open more than a second's worth; the next one then
// waits for its time. An engine that has come from another daemon opens its sequences again, by
// their handles, and these are free. Thread-safe.
//
//   if (absl::Status status = rate.Check(clock->NowNs(), false); !status.ok()) return status;
//   ...                                    // opens 3 sequences
//   rate.Count({.sequences = 3}, clock->NowNs());
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/base/mutex.h"

namespace specd {

class OpeningRate {
 public:
  struct Options {
    uint32_t per_second = 0;  // 0: not bounded
    uint64_t num_free = 0;    // sequences that come from another daemon
  };
  explicit OpeningRate(const Options& options)
      : per_second_(options.per_second), num_free_(options.num_free) {}

  // An error that says when the next opening may come.
  // `may_be_free`: it has a handle of another daemon, or is not read yet.
  absl::Status Check(int64_t now_ns, bool may_be_free) const ABSL_LOCKS_EXCLUDED(mutex_);
  struct Opened {
    uint64_t sequences = 0;
    uint64_t resumed = 0;  // those that came with a handle
  };
  void Count(const Opened& opened, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);

  uint32_t per_second() const { return per_second_; }
  uint64_t num_opened() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const uint32_t per_second_;
  mutable Mutex mutex_;
  uint64_t num_free_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_opened_ ABSL_GUARDED_BY(mutex_) = 0;
  // By then all openings so far would have been made, one after another at the rate.
  int64_t paid_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace specd
