// RoundCounts holds what the launches of a round ask of a device, counted by running their PTX on a
// CPU (tests/gpu/ptx/counts), for `specd-bench ptx`.
//
// A file of counts has one line of JSON for each round. PredictRound predicts the time of a round
// on a device. A launch takes the longest of four times, and rounds add a gap for each launch:
//
//   issue    its instructions over the places that a processor has for them in a cycle, in all and
//            by unit; a class counts as often as the machine code is expected to have it
//   memory   the sectors that are needed over the bandwidth of the memory, and those that are asked
//            for over that of the L2 cache
//   shared   the turns that accesses of shared memory take
//   chain    the cycles of the longest warp
//
// It is a model: ptxas may merge or split instructions, and nothing here knows how well warps hide
// each other's waits. Plain data, and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace specd::bench {

struct LaunchCounts {
  std::string kernel;
  int64_t num_blocks = 0;
  int64_t threads_per_block = 0;
  std::map<std::string, int64_t> num_by_class = {};  // instructions of warps
  int64_t num_idle_lanes = 0;                        // summed over the instructions
  int64_t asked_bytes = 0;
  int64_t asked_sectors = 0;   // of 32 bytes
  int64_t needed_sectors = 0;  // that no access of the round had asked for before
  int64_t asked_row_sectors = 0;
  int64_t repeated_row_sectors = 0;  // that the launch had asked for before
  int64_t num_shared_turns = 0;      // that accesses of shared memory take
  int64_t num_bank_conflicts = 0;    // turns beyond those that accesses of their size need
  int64_t chain_cycles = 0;          // of the longest warp, with a processor to itself
  int64_t chain_instructions = 0;
  // Cycles of that warp in the calls of a function, by the function's name.
  std::map<std::string, int64_t> chain_functions = {};

  int64_t num_instructions() const;
};

struct RoundCounts {
  std::string case_name;
  std::string dtype;
  int32_t arch = 0;  // of the PTX: 80 or 90
  int32_t num_processors = 0;
  int32_t batch = 0;
  int32_t draft = 0;
  int32_t vocab_size = 0;
  int64_t num_elements = 0;  // of the rows that the round's decisions need
  std::vector<LaunchCounts> round = {};
  std::vector<LaunchCounts> read = {};  // of the same rows

  int64_t num_instructions() const;
};

// One line, without its newline.
std::string ToJson(const RoundCounts& counts);

// INVALID_ARGUMENT with the line's number if a line is none of ToJson.
absl::StatusOr<std::vector<RoundCounts>> ParseCounts(std::string_view text);

struct DeviceFigures {
  std::string_view name;
  int32_t arch = 0;  // of the PTX that it runs: 80 or 90
  int32_t num_processors = 0;
  double clock_ghz = 0;
  double memory_gigabytes_per_s = 0;
  double l2_bytes_per_cycle = 0;
  double gap_us = 0;        // of the first launch, and of each one that waits for the one before
  double early_gap_us = 0;  // of a launch that was brought to the device meanwhile
  // Lanes of a processor in a cycle.
  double float_lanes = 0;
  double double_lanes = 0;
};

// Null if there is none with so many processors that runs this PTX.
const DeviceFigures* FindPtxDevice(int32_t arch, int32_t num_processors);

enum class Bound { kIssue, kMemory, kShared, kChain };
std::string_view BoundName(Bound bound);

struct LaunchPrediction {
  double issue_us = 0;
  double memory_us = 0;
  double shared_us = 0;
  double chain_us = 0;

  double us() const;
  // The time of a device that is always busy: the longest of the other three.
  double busy_us() const;
  Bound bound() const;
};
LaunchPrediction PredictLaunch(const LaunchCounts& counts, const DeviceFigures& device);

struct RoundPrediction {
  double us = 0;
  double busy_us = 0;            // the same without the chains
  double gap_us = 0;             // the part of both that no launch works in
  Bound bound = Bound::kMemory;  // of the longest launch
};
RoundPrediction PredictRound(std::span<const LaunchCounts> launches, const DeviceFigures& device);

}  // namespace specd::bench
