// LaunchState is what all warps of a launch share.
//
// One launch runs at a time, on one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/ptx/machine/launch.h"
#include "tests/gpu/ptx/machine/race_checker.h"

namespace specd::ptx {

struct LaunchState {
  const Function& entry;
  LaunchShape shape;
  LaunchOptions options;
  std::vector<std::byte> params;  // as they lie in the memory of params
  RaceChecker races;
  uint64_t random = 1;
  uint64_t num_instructions = 0;
  std::string error;  // the first one

  bool has_failed() const { return !error.empty(); }
  uint32_t warps_per_block() const { return WarpsPerBlock(shape); }

  // Knuth's MMIX generator; the upper bits are good enough for a schedule.
  int32_t Random(int32_t below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int32_t>((random >> 33) % static_cast<uint64_t>(below));
  }
};

}  // namespace specd::ptx
