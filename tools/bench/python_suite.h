// PythonSuite measures what Python adds to the calls for many sequences, for `specd-bench python`.
//
// A C engine and a Python engine do the same work in blocks by turns, so that a disturbance of the
// machine disturbs both: the call for all sequences and the calls for single ones. The suite runs
// on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tools/bench/machine.h"
#include "tools/bench/measurement.h"
#include "tools/bench/python_scene.h"

namespace specd::bench {

struct PythonCase {
  std::string_view name;
  bool is_attached;
  BatchWork batch;
  BatchWork each;
  int block;            // repetitions in a block
  double divisor;       // of the times: 1, or the number of sequences
  double target_ratio;  // of Python to C; 0: none
  double target_us;     // of C and Python; 0: none
  std::string_view summary;
};

std::span<const PythonCase> PythonCases();
const PythonCase* FindPythonCase(std::string_view name);

struct PythonBenchOptions {
  std::string specd;   // the path of the daemon's program
  std::string python;  // the interpreter
  std::vector<const PythonCase*> cases;
  std::vector<int32_t> vocab_sizes;
  double seconds = 1;  // of each measurement
};

struct PythonMeasurement {
  const PythonCase* python_case = nullptr;
  int32_t vocab_size = 0;
  Summary c_us = {};
  Summary python_us = {};
  Summary ratio = {};  // Python / C, of neighbouring blocks' medians
  Summary c_each_us = {};
  Summary python_each_us = {};
  ForeignLoad load = {};

  bool HasTarget() const { return python_case->target_ratio > 0 || python_case->target_us > 0; }
  bool IsMet() const {
    const double ratio_max = python_case->target_ratio;
    const double us_max = python_case->target_us;
    return (ratio_max == 0 || ratio.median <= ratio_max) &&
           (us_max == 0 || (c_us.median <= us_max && python_us.median <= us_max));
  }
};

class PythonSuite {
 public:
  struct Hooks {
    std::function<void(std::string_view)> on_progress;
    std::function<void(const PythonMeasurement&)> on_result;
  };
  PythonSuite(PythonBenchOptions options, Hooks hooks)
      : options_(std::move(options)), hooks_(std::move(hooks)) {}

  absl::Status Run();

 private:
  absl::Status Measure(const std::string& uri, PythonMeasurement measurement);

  const PythonBenchOptions options_;
  const Hooks hooks_;
};

}  // namespace specd::bench
