// RoundCounts holds what the launches of a round ask of a device, counted by running their PTX on a
// CPU (tests/gpu/ptx/counts), for `specd-bench ptx`.
//
// A file of counts has one line of JSON for each round. Plain data.
#pragma once

#include <cstdint>
#include <map>
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

}  // namespace specd::bench
