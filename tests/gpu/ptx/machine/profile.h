// LaunchProfile counts what a launch asks of a device, and Profiler collects it while warps run.
//
// Memory: every access of a warp asks for sectors of 32 bytes. A sector is needed once for the
// life of a Profiler, which is a round. Time: pipeline.h keeps the cycles of each warp as if it had
// the device to itself; the longest of them is the launch's chain. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

// Cycles of a warp in the outermost calls of a function, by the function's name. The warp's waits
// in them count, and the functions that it calls.
using FunctionTimes = std::map<std::string, uint64_t>;

struct LaunchProfile {
  std::string kernel;
  uint32_t num_blocks = 0;
  uint32_t threads_per_block = 0;
  std::array<uint64_t, kNumOpClasses> num_by_class = {};  // of a warp
  uint64_t num_idle_lanes = 0;                            // summed over instructions
  uint64_t asked_bytes = 0;                               // of global memory
  uint64_t asked_sectors = 0;
  uint64_t needed_sectors = 0;  // that the round had not asked for before
  uint64_t asked_row_sectors = 0;
  uint64_t repeated_row_sectors = 0;  // that the launch had asked for before
  uint64_t num_shared_accesses = 0;
  uint64_t num_shared_turns = 0;    // that these accesses take
  uint64_t num_bank_conflicts = 0;  // turns beyond those that accesses of their size need
  uint64_t chain_cycles = 0;
  uint64_t chain_instructions = 0;
  FunctionTimes chain_functions = {};

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

// One access of a warp: the lanes by the memory that each reaches, and their addresses.
struct WarpAccess {
  uint64_t addresses[kLanes];
  uint32_t global_lanes = 0;
  uint32_t shared_lanes = 0;
  uint32_t local_lanes = 0;
  uint32_t size_bytes = 0;
};

// Sectors of 32 bytes, by their address over 32.
class SectorSet {
 public:
  // False if the sector was there already.
  bool Add(uint64_t sector);
  void Clear() { pages_.clear(); }

 private:
  static constexpr uint64_t kSectorsPerPage = 128;
  std::unordered_map<uint64_t, std::array<uint64_t, kSectorsPerPage / 64>> pages_;
};

// Estimates of how long an access takes that goes no farther than to the processor's own cache,
// where local memory is too, to the L2 cache, or to memory.
inline constexpr uint64_t kNearCycles = 38;
inline constexpr uint64_t kL2Cycles = 263;
inline constexpr uint64_t kMemoryCycles = 479;

// The cache of a processor. A sector arrives some cycles after a load has asked for it. Loads that
// ask for the same sector meanwhile wait for its arrival.
class NearCache {
 public:
  // The cycle of the launch at which the sector arrives; null if no load has asked for it.
  const uint64_t* Find(uint64_t sector) const {
    const auto found = ready_.find(sector);
    return found == ready_.end() ? nullptr : &found->second;
  }
  void Add(uint64_t sector, uint64_t ready) { ready_.emplace(sector, ready); }
  void Clear() { ready_.clear(); }

 private:
  std::unordered_map<uint64_t, uint64_t> ready_;
};

struct AddressRange {
  uint64_t begin = 0;
  uint64_t end = 0;

  bool Holds(uint64_t address) const { return address >= begin && address < end; }
};

class Profiler {
 public:
  // The memory of rows, for LaunchProfile::asked_row_sectors. It begins and ends with a sector.
  void SetRows(std::vector<AddressRange> rows) { rows_ = std::move(rows); }

  void Begin(const std::string& kernel, uint32_t num_blocks, uint32_t threads_per_block);
  const std::vector<LaunchProfile>& launches() const { return launches_; }

  void NoteInstruction(OpClass op_class, uint32_t num_active) {
    ++launches_.back().num_by_class[static_cast<size_t>(op_class)];
    launches_.back().num_idle_lanes += kLanes - num_active;
  }
  // Notes an access that begins in the cycle `now`; returns the cycle in which its last sector is
  // there. `near` is the cache of the warp's processor, or null if the access does not look there.
  uint64_t NoteAccess(const WarpAccess& access, bool is_load, uint64_t now, NearCache* near);
  // A warp has ended, with the times of its functions.
  void NoteEnd(const ChainPoint& end, const FunctionTimes& functions);

  // When the last atomic operation at an address was done, in cycles of the launch.
  uint64_t& DoneAt(uint64_t address) { return atomics_[address]; }

 private:
  void NoteShared(const WarpAccess& access);

  std::vector<AddressRange> rows_;
  std::vector<LaunchProfile> launches_;
  SectorSet sectors_;      // of the round
  SectorSet row_sectors_;  // of the launch
  std::unordered_map<uint64_t, uint64_t> atomics_;
};

}  // namespace specd::ptx
