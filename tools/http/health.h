// Health judges a daemon by its counters file, for specd-http: whether it lives, and whether
// it takes engines.
//
// A daemon is ready while it serves and every thread of it looks around. It is not ready before its
// models are loaded, while it drains, when a thread stands still, and while its device gives the
// canary wrong answers. It is dead once it has ended, or when a thread stands still for so long
// that only a restart helps. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "ipc/counters/counter_snapshot.h"

namespace specd::http {

class Health {
 public:
  static constexpr int64_t kStillNs = 2'000'000'000;  // an idle thread looks twice a second
  static constexpr int64_t kDeadNs = 30'000'000'000;
  // Twice as often as a thread that hangs could be found.
  static constexpr int64_t kLookNs = 500'000'000;

  // What ReadCounters has found. The time counts only while the caller looks (AwakeTime).
  void Look(const absl::StatusOr<CounterSnapshot>& found, int64_t now_ns);

  struct Verdict {
    bool is_live = false;
    bool is_ready = false;
    std::string why;  // one line
  };
  // Of the last look.
  const Verdict& verdict() const { return verdict_; }

 private:
  struct Beat {
    uint64_t count = 0;
    int64_t moved_ns = 0;
  };
  Verdict Judge(const CounterSnapshot& now, int64_t now_ns);

  uint64_t epoch_ = 0;
  std::map<std::string, Beat> beats_;  // by the labels of specd:thread_beats
  Verdict verdict_ = {.why = "nobody has looked yet"};
};

}  // namespace specd::http
