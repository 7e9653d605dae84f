// PredictRound predicts the time of a round on a device from the counts of its launches, for
// specd_ptx_counts. A launch takes the longest of four times, and rounds add a gap for each launch:
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

#include <span>
#include <string_view>

#include "tests/gpu/ptx/machine/profile.h"

namespace specd::ptx {

struct DeviceFigures {
  std::string_view name;
  int arch = 0;  // of the PTX that it runs: 80 or 90
  int num_processors = 0;
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
const DeviceFigures* FindDevice(int arch, int num_processors);

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
LaunchPrediction PredictLaunch(const LaunchProfile& counts, const DeviceFigures& device);

struct RoundPrediction {
  double us = 0;
  double busy_us = 0;            // the same without the chains
  double gap_us = 0;             // the part of both that no launch works in
  Bound bound = Bound::kMemory;  // of the longest launch
};
RoundPrediction PredictRound(std::span<const LaunchProfile> launches, const DeviceFigures& device);

}  // namespace specd::ptx
