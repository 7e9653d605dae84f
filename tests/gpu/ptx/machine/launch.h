// RunLaunch runs one launch of a kernel on the CPU, as a grid of warps whose lanes go in lock step.
//
// The schedule follows the seed: which warp goes on, for how many instructions, and which blocks
// are resident. The same seed gives the same run. The status of a launch that did something
// forbidden names kernel, file, line, lanes and address, and the launch ends there. One launch at a
// time: a second waits for the first.
//
//   LaunchOptions options{.seed = 7, .quantum = 1};
//   absl::Status status = RunLaunch(*entry, {.grid = 2, .block = 64}, arguments, options);
#pragma once

#include <absl/status/status.h>

#include <cstdint>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

class Profiler;

struct LaunchOptions {
  uint64_t seed = 1;
  int32_t resident_clusters = 4;  // that take turns; a block without a cluster counts as one
  int32_t quantum = 500;          // most instructions until another warp may go on
  // rcp.approx.f32 is off by one unit in the last place: up, down or not at all, by operand and
  // seed.
  bool has_rough_reciprocals = false;
  bool poisons_registers = false;  // they begin with a pattern of the seed, else with 0
  // Takes the counts of the launch. All blocks are then resident, and warps go on in the order of
  // their times in the launch instead of one of the seed. specd launches no more blocks than fit.
  Profiler* profiler = nullptr;
};

// One-dimensional, as all kernels here.
struct LaunchShape {
  uint32_t grid = 1;
  uint32_t block = 32;
  uint32_t cluster = 1;  // divides the grid
  // It may begin before the launch before it has ended. The machine runs launches one after
  // another, but refuses what a warp does with global memory before griddepcontrol.wait.
  bool is_early = false;
};

constexpr uint32_t WarpsPerBlock(const LaunchShape& shape) {
  return shape.block / kLanes + (shape.block % kLanes != 0 ? 1 : 0);
}

struct LaunchCounts {
  uint64_t num_launches = 0;
  uint64_t num_warp_instructions = 0;
  uint64_t num_switches = 0;
};

// arguments[i] points to the value of the entry's i-th param. `counts` may be null.
absl::Status RunLaunch(const Function& entry, const LaunchShape& shape,
                       const void* const* arguments, const LaunchOptions& options,
                       LaunchCounts* counts = nullptr);

}  // namespace specd::ptx
