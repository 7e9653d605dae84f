// ReadCounters copies a counters file and checks the copy, for programs that show counters.
//
// The reader trusts no byte of the file: it never maps it, so a file that is cut short meanwhile is
// an error and not a SIGBUS. After the check every name, label and help text can be printed as it
// is. Safe from any thread.
//
//   absl::StatusOr<CounterSnapshot> now = ReadCounters("/run/specd/specd.sock.counters");
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ipc/counters/counter_layout.h"

namespace specd {

struct CounterValues {
  std::string name = {};
  std::string labels = {};  // model="qwen3",position="0"
  std::string help = {};
  CounterKind kind = CounterKind::kCounter;
  bool is_optional = false;
  std::vector<uint64_t> values = {};

  uint64_t value() const { return values[0]; }
  bool is_shown() const { return !is_optional || values[0] != 0; }
  // Of kTimes.
  uint64_t count() const;
  uint64_t sum_ns() const { return values[kTimesBounds + 1]; }
  // The smallest bound that at least this share of the durations kept to, in nanoseconds; 0 if
  // there are none, and twice the last bound for those beyond it.
  uint64_t QuantileNs(double share) const;
};

struct CounterSnapshot {
  uint32_t pid = 0;
  uint64_t epoch = 0;
  uint64_t start_unix_ns = 0;
  bool is_alive = false;                   // the daemon that made the file has not ended
  std::vector<CounterValues> series = {};  // as in the file: those of one family stand together

  // The series, or null.
  const CounterValues* Find(std::string_view name, std::string_view labels = "") const;
  // The sum over all series of a family of kCounter or kGauge.
  uint64_t SumOf(std::string_view name) const;
};

// NOT_FOUND if there is no file; otherwise the error says what is wrong with the file.
absl::StatusOr<CounterSnapshot> ReadCounters(const std::string& path);

// The bound of a bucket of a histogram.
constexpr uint64_t TimesBoundNs(uint32_t bucket) { return kTimesFirstNs << bucket; }

}  // namespace specd
