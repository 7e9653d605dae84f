// RaceChecker finds accesses of two lanes to one word that nothing orders, one of them a write.
//
// A launch has one checker. The checker keeps a vector clock for each warp: how far that warp has
// seen the others. A barrier joins the clocks of its warps. An acquire takes the clocks that a
// release left at the same address. The lanes of a warp are ordered by bar.warp.sync and by
// barriers. Clocks that a single lane acquires reach its warp's other lanes with the next of these.
// Two strong accesses do not race if the scope of each reaches the other's warp. A release and an
// acquire order under the same condition. The rules are those of PTX ISA, "Memory Consistency
// Model"; the method is that of FastTrack (Flanagan and Freund, PLDI 2009).
//
// The checker misses a race with an access older than those that shadow.h keeps. Lanes run an
// instruction together, so it finds no lack of convergence either. Not thread-safe: one launch at a
// time uses it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"
#include "tests/gpu/ptx/machine/shadow.h"

namespace specd::ptx {

// How the warps of a launch form blocks and clusters, and how far its accesses reach at least.
struct WarpLayout {
  uint32_t warps_per_block = 1;
  uint32_t warps_per_cluster = 1;
  Scope narrowest_scope = Scope::kDevice;
};

// Others have seen a warp up to a clock: the last one for each warp, and the lane that it is of.
using SeenClocks = std::vector<uint32_t>;
// The same by the scope of what orders; that of Scope::kNone is empty.
using ClocksByScope = std::array<SeenClocks, kNumScopes>;

// The clocks of one warp.
struct WarpClock {
  uint32_t warp = 0;    // of the launch
  uint32_t clock = 1;   // moves with each release and each barrier
  uint32_t synced = 1;  // the clock at which the lanes were last ordered
  SeenClocks seen;      // by all lanes
  SeenClocks seen_by_some;
  uint32_t some_lanes = 0;  // the lanes that have acquired since; they know seen_by_some
  ClocksByScope fenced;     // at the last fence, which a later relaxed write releases
  ClocksByScope to_fence;   // what relaxed reads found, for the next fence
};

struct Race {
  Moment other;
  bool other_wrote = false;
};

class RaceChecker {
 public:
  explicit RaceChecker(const WarpLayout& layout);

  // REQUIRES: warp < Moment::kMaxWarps
  WarpClock NewWarp(uint32_t warp) const;

  // Whether the cell has an access at all that one like this could race with.
  bool IsSuspect(const ShadowCell& cell, bool is_write) const {
    return cell.generation == generation_ &&
           (cell.write.exists() ||
            (is_write && (cell.reads[0].exists() || cell.reads[1].exists())));
  }
  // A lane's access to the bytes of a cell (bit i: byte i). Look only compares. Lanes of one
  // instruction do not race with each other, so all look before one is noted.
  std::optional<Race> Look(const WarpClock& warp, uint32_t lane, const ShadowCell& cell,
                           uint8_t bytes, Scope scope, bool is_write) const;
  void Note(const WarpClock& warp, uint32_t lane, ShadowCell* cell, uint8_t bytes, Scope scope,
            bool is_write) const;

  // Strong accesses and fences order other accesses; a weak access orders nothing. The caller
  // calls Acquire before the access, and Release after it.
  void Acquire(WarpClock* warp, uint32_t lane, uint64_t address, const MemoryAccess& access) const;
  void Release(WarpClock* warp, uint32_t lane, uint64_t address, const MemoryAccess& access,
               bool is_atomic);
  void Fence(WarpClock* warp, uint32_t lanes, Scope scope) const;
  // bar.warp.sync
  void SyncLanes(WarpClock* warp) const;
  // A barrier of several warps: all leave what they know, and take what all left.
  void Arrive(WarpClock* warp, SeenClocks* joined) const;
  void Leave(WarpClock* warp, const SeenClocks& joined) const;

 private:
  // The clocks that releases of one scope left for the warps of one group: a block, a cluster or
  // all warps.
  struct Released {
    Scope scope;
    uint32_t group;
    SeenClocks clocks;
  };

  bool IsOrdered(const WarpClock& warp, uint32_t lane, Moment earlier) const;
  // The block or the cluster of a warp; 0 for all warps of the device.
  uint32_t GroupOf(Scope scope, uint32_t warp) const;
  // PTX ISA, "Morally Strong Operations": whether each scope reaches the other's warp.
  bool ReachEachOther(Scope scope, uint32_t warp, Scope other_scope, uint32_t other_warp) const;
  SeenClocks* ReleasedAt(uint64_t address, Scope scope, uint32_t warp);
  // A release of a scope leaves its clocks for each group up to it, down to the narrowest that an
  // acquire may ask for. A release and an acquire then meet in a group if they reach each other.
  template <typename ScopeFunction>
  void ForEachScope(Scope widest, const ScopeFunction& function) const;

  const WarpLayout layout_;
  const uint32_t generation_;
  std::unordered_map<uint64_t, std::vector<Released>> released_;  // by address
};

}  // namespace specd::ptx
