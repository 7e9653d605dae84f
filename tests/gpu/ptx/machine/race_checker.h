// RaceChecker finds accesses of two lanes to one word that nothing orders, one of them a write.
//
// A launch has one checker. It knows what each warp has seen of the others, as vector clocks: a
// barrier joins the clocks of its warps; an acquire takes what a release left at the same address.
// Lanes of a warp are ordered by bar.warp.sync and by barriers. What a single lane acquires reaches
// its warp's other lanes with the next of these. Two strong accesses never race. PTX ISA, "Memory
// Consistency Model"; the method is that of FastTrack (Flanagan and Freund, PLDI 2009).
//
// Not found: races that need both an access older than those that shadow.h keeps, and missing
// convergence (lanes run an instruction together). Not synchronized: one launch at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"
#include "tests/gpu/ptx/machine/shadow.h"

namespace specd::ptx {

// What a warp knows of the others: for each the last clock that it has seen, and of which lane.
using SeenClocks = std::vector<uint32_t>;

// The clocks of one warp.
struct WarpClock {
  uint32_t warp = 0;    // of the launch
  uint32_t clock = 1;   // moves with each release and each barrier
  uint32_t synced = 1;  // the clock at which the lanes were last ordered
  SeenClocks seen;      // by all lanes
  SeenClocks seen_by_some;
  uint32_t some_lanes = 0;  // the lanes that have acquired since; they know seen_by_some
  SeenClocks fenced;        // at the last fence, which a later relaxed write releases
  SeenClocks to_fence;      // what relaxed reads found, for the next fence
};

struct Race {
  Moment other;
  bool other_wrote = false;
};

class RaceChecker {
 public:
  RaceChecker();

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
                           uint8_t bytes, bool is_strong, bool is_write) const;
  void Note(const WarpClock& warp, uint32_t lane, ShadowCell* cell, uint8_t bytes, bool is_strong,
            bool is_write) const;

  // What a strong access and a fence order. Acquire goes before the access, release behind it.
  void Acquire(WarpClock* warp, uint32_t lane, uint64_t address, Order order);
  void Release(WarpClock* warp, uint32_t lane, uint64_t address, Order order, bool is_atomic);
  void Fence(WarpClock* warp, uint32_t lanes);
  // bar.warp.sync
  void SyncLanes(WarpClock* warp) const;
  // A barrier of several warps: all leave what they know, and take what all left.
  void Arrive(WarpClock* warp, SeenClocks* joined) const;
  void Leave(WarpClock* warp, const SeenClocks& joined) const;

 private:
  bool IsOrdered(const WarpClock& warp, uint32_t lane, Moment earlier) const;

  uint16_t generation_;
  std::unordered_map<uint64_t, SeenClocks> released_;  // by address
};

}  // namespace specd::ptx
