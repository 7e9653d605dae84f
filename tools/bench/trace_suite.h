// TraceSuite measures what a trace adds to the rounds of an engine, for `specd-bench trace`.
//
// Two sessions in one process read the same rows: one is recorded, the other is not. Their rounds
// are timed in turn, in pairs whose order alternates, so that a disturbance of the machine disturbs
// both. The writer's thread runs beside them, on the same processors. The suite runs on the calling
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "daemon/trace/trace_record.h"
#include "kernels/core/types.h"
#include "tools/bench/machine.h"
#include "tools/bench/measurement.h"

namespace specd::bench {

struct TraceBenchOptions {
  std::string directory;  // for the files, which the suite deletes
  std::vector<int32_t> batches;
  int32_t vocab_size = 0;
  int32_t draft = 0;
  int32_t threads = 1;
  double seconds = 1;  // of each measurement, after at least 200 pairs
};

struct TraceMeasurement {
  std::string_view level;
  int32_t batch = 0;
  int32_t draft = 0;
  int32_t vocab_size = 0;
  Summary traced_us = {};
  Summary plain_us = {};
  // The differences of pairs: the median, and the interval that holds it with 95 %.
  double added_us = 0;
  double added_low_us = 0;
  double added_high_us = 0;
  double bytes_per_sequence_round = 0;  // of a trace without rows; 0: not measured
  uint64_t num_dropped = 0;             // rounds, and rounds without their rows
  ForeignLoad load = {};
};

class TraceSuite {
 public:
  struct Hooks {
    std::function<void(std::string_view)> on_progress;
    std::function<void(const TraceMeasurement&)> on_result;
  };
  TraceSuite(TraceBenchOptions options, Hooks hooks)
      : options_(std::move(options)), hooks_(std::move(hooks)) {}

  absl::Status Run();

 private:
  absl::Status Measure(std::string_view level, int32_t batch);

  const TraceBenchOptions options_;
  const Hooks hooks_;
};

// RowHash over a row that is not in a cache, in GB/s.
double MeasureRowHash();

}  // namespace specd::bench
