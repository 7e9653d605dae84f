// LaunchProfile counts what a launch asks of a device, and Profiler collects it while warps run.
//
// Memory: every access of a warp asks for sectors of 32 bytes. A sector is needed once for the
// life of a Profiler, which is a round. Time: pipeline.h keeps the cycles of each warp as if it had
// the device to itself; the longest of them is the launch's chain. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

struct LaunchProfile {
  std::string kernel;
  uint32_t num_blocks = 0;
  uint32_t threads_per_block = 0;
  std::array<uint64_t, kNumOpClasses> num_by_class = {};  // of a warp
  uint64_t num_idle_lanes = 0;                            // summed over instructions
  uint64_t asked_bytes = 0;                               // of global memory
  uint64_t asked_sectors = 0;
  uint64_t needed_sectors = 0;  // that the round had not asked for before
  uint64_t num_shared_accesses = 0;
  uint64_t num_bank_conflicts = 0;  // turns that shared memory takes beyond the first
  uint64_t chain_cycles = 0;
  uint64_t chain_instructions = 0;

  uint64_t num_instructions() const;
};

// A moment of a warp: the cycles, and the instructions that led there one after the other.
struct ChainPoint {
  uint64_t cycles = 0;
  uint64_t instructions = 0;

  void JoinLater(const ChainPoint& other) {
    if (other.cycles > cycles) *this = other;
  }
};

// The addresses of one access, by lanes.
struct WarpAccess {
  uint64_t addresses[kLanes];
  uint32_t lanes = 0;
  uint32_t size_bytes = 0;
  bool is_shared = false;
};

class Profiler {
 public:
  void Begin(const std::string& kernel, uint32_t num_blocks, uint32_t threads_per_block);
  const std::vector<LaunchProfile>& launches() const { return launches_; }

  void NoteInstruction(OpClass op_class, uint32_t num_active) {
    ++launches_.back().num_by_class[static_cast<size_t>(op_class)];
    launches_.back().num_idle_lanes += kLanes - num_active;
  }
  // Returns whether the access needs a sector that the round had not asked for.
  bool NoteAccess(const WarpAccess& access);
  void NoteEnd(const ChainPoint& end);

  // When the last atomic operation at an address was done, in cycles of the launch.
  uint64_t& DoneAt(uint64_t address) { return atomics_[address]; }

 private:
  void NoteShared(const WarpAccess& access);

  std::vector<LaunchProfile> launches_;
  std::unordered_map<uint64_t, std::array<uint64_t, 2>> pages_;  // the sectors that were asked for
  std::unordered_map<uint64_t, uint64_t> atomics_;
};

}  // namespace specd::ptx
