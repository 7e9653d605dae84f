// Measurement holds the times of one case of `verify` or `gpu`, the times of its bound or peer, and
// their ratio.
//
// Plain data; Print prints it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/types.h"
#include "tools/bench/output.h"
#include "tools/bench/timing.h"

namespace specd::bench {

// The names of baselines: a read of the rows that a round needs; and for trees, chains over the
// rows that they read.
inline constexpr std::string_view kRead = "read";
inline constexpr std::string_view kChainOfTree = "chain";

struct Measurement {
  std::string_view case_name;
  std::string_view method;
  std::string_view rows;
  DType dtype = DType::kFloat32;
  int32_t vocab_size = 0;
  int32_t batch = 0;
  int32_t draft = 0;
  int32_t threads = 1;  // 0: on a device
  bool cold = true;

  Summary time_us = {};
  Summary base_us = {};
  Summary whole_us = {};  // on a device: of the backend's rounds; no samples if not timed
  // The baseline of base_us: kRead, kChainOfTree or llama.
  std::string_view ratio_of = {};
  double ratio = 0;      // of the medians: case / read or chain, or peer / case
  double ratio_p10 = 0;  // over neighbouring pairs
  double ratio_p90 = 0;
  double base_gigabytes_per_s = 0;  // for a read
  double rows_read = 0;             // of a sequence, by a round; 0: not known
  int32_t rows_given = 0;
  double target = 0;     // the ratio to stay below (read) or above (a peer); 0: none
  double target_us = 0;  // or the time to stay below; 0: none

  int64_t num_checked = 0;  // compared tokens of the timed rounds
  ForeignLoad load = {};

  bool IsOnDevice() const { return threads == 0; }
  bool IsSpeedUp() const { return ratio_of != kRead && ratio_of != kChainOfTree; }
  // A target in us, or of the ratio.
  Goal goal() const {
    if (target_us > 0) return {.measured = time_us.median, .bound = target_us, .unit = "us"};
    return {.measured = ratio, .bound = target, .is_least = IsSpeedUp()};
  }
};

// Fills the times and ratios. Entry i of one was measured right beside entry i of the other.
// REQUIRES: ratio_of is set.
void SetTimes(const Times& case_us, const Times& base_us, Measurement* measurement);

Line LineOf(const Measurement& measurement);
// Prints the line under a caption.
void Print(const Measurement& measurement, Output* out);

std::string_view DTypeName(DType dtype);

}  // namespace specd::bench
