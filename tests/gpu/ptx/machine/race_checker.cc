#include "tests/gpu/ptx/machine/race_checker.h"

#include <algorithm>

#include "tests/gpu/ptx/machine/device_memory.h"

namespace specd::ptx {

namespace {

// An entry of SeenClocks: a clock, and the lane that was seen, or all lanes.
constexpr uint32_t kAllLanesSeen = 32;
constexpr uint32_t Seen(uint32_t clock, uint32_t lane) { return clock << 6 | lane; }

void Join(const SeenClocks& from, SeenClocks* to) {
  if (to->size() < from.size()) to->resize(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] = std::max((*to)[i], from[i]);
}

void JoinOwn(uint32_t warp, uint32_t seen, SeenClocks* to) {
  if (to->size() <= warp) to->resize(warp + 1, 0);
  (*to)[warp] = std::max((*to)[warp], seen);
}

// Cells of earlier launches do not count, because a launch ends before the next begins.
uint32_t NextGeneration() {
  static uint32_t generation = 0;
  if (++generation > ShadowCell::kMaxGeneration) {
    ClearShadows();
    generation = 1;
  }
  return generation;
}

size_t IndexOf(Scope scope) { return static_cast<size_t>(scope); }

// At the last clock a warp's moments are no longer told apart, and count as ordered (IsOrdered).
void MoveClock(WarpClock* warp) {
  if (warp->clock < Moment::kMaxClock) ++warp->clock;
}

}  // namespace

RaceChecker::RaceChecker(const WarpLayout& layout)
    : layout_(layout), generation_(NextGeneration()) {}

WarpClock RaceChecker::NewWarp(uint32_t warp) const {
  WarpClock clock;
  clock.warp = warp;
  return clock;
}

bool RaceChecker::IsOrdered(const WarpClock& warp, uint32_t lane, Moment earlier) const {
  if (earlier.clock() == Moment::kMaxClock) return true;
  if (earlier.warp() == warp.warp) {
    return earlier.lane() == lane || earlier.clock() < warp.synced;
  }
  const SeenClocks& seen = (warp.some_lanes >> lane & 1) != 0 ? warp.seen_by_some : warp.seen;
  if (earlier.warp() >= seen.size()) return false;
  const uint32_t known = seen[earlier.warp()];
  return known >= Seen(earlier.clock(), kAllLanesSeen) ||
         known == Seen(earlier.clock(), earlier.lane());
}

uint32_t RaceChecker::GroupOf(Scope scope, uint32_t warp) const {
  if (scope == Scope::kDevice) return 0;
  return warp / (scope == Scope::kBlock ? layout_.warps_per_block : layout_.warps_per_cluster);
}

bool RaceChecker::ReachEachOther(Scope scope, uint32_t warp, Scope other_scope,
                                 uint32_t other_warp) const {
  const Scope narrower = std::min(scope, other_scope);
  return narrower != Scope::kNone && GroupOf(narrower, warp) == GroupOf(narrower, other_warp);
}

template <typename ScopeFunction>
void RaceChecker::ForEachScope(Scope widest, const ScopeFunction& function) const {
  for (size_t i = IndexOf(layout_.narrowest_scope); i <= IndexOf(widest); ++i) {
    function(static_cast<Scope>(i));
  }
}

std::optional<Race> RaceChecker::Look(const WarpClock& warp, uint32_t lane, const ShadowCell& cell,
                                      uint8_t bytes, Scope scope, bool is_write) const {
  if (cell.generation != generation_) return std::nullopt;
  const auto races = [&](int which, Moment earlier) {
    return earlier.exists() && (cell.BytesOf(which) & bytes) != 0 &&
           !ReachEachOther(scope, warp.warp, cell.ScopeOf(which), earlier.warp()) &&
           !IsOrdered(warp, lane, earlier);
  };
  if (races(0, cell.write)) return Race{cell.write, true};
  if (!is_write) return std::nullopt;
  for (int i = 0; i < 2; ++i) {
    if (races(i + 1, cell.reads[i])) return Race{cell.reads[i], false};
  }
  return std::nullopt;
}

void RaceChecker::Note(const WarpClock& warp, uint32_t lane, ShadowCell* cell, uint8_t bytes,
                       Scope scope, bool is_write) const {
  if (cell->generation != generation_) {
    *cell = {};
    cell->generation = generation_;
  }
  const Moment now(warp.warp, warp.clock, lane);
  Moment* moment = &cell->write;
  int which = 0;
  if (!is_write) {
    // The read that this one makes needless, else the older one.
    const bool first = !cell->reads[0].exists() || IsOrdered(warp, lane, cell->reads[0]);
    const bool second = !cell->reads[1].exists() || IsOrdered(warp, lane, cell->reads[1]);
    which = first || !second ? 1 : 2;
    moment = &cell->reads[which - 1];
  }
  if (*moment == now) bytes |= cell->BytesOf(which);
  *moment = now;
  cell->Mark(which, bytes, scope);
}

SeenClocks* RaceChecker::ReleasedAt(uint64_t address, Scope scope, uint32_t warp) {
  const uint32_t group = GroupOf(scope, warp);
  std::vector<Released>& all = released_[address];
  for (Released& released : all) {
    if (released.scope == scope && released.group == group) return &released.clocks;
  }
  return &all.emplace_back(Released{.scope = scope, .group = group, .clocks = {}}).clocks;
}

void RaceChecker::Acquire(WarpClock* warp, uint32_t lane, uint64_t address,
                          const MemoryAccess& access) const {
  if (access.scope == Scope::kNone) return;
  const auto found = released_.find(address);
  if (found == released_.end()) return;
  const bool is_acquire = access.order == Order::kAcquire || access.order == Order::kBoth;
  for (const Released& released : found->second) {
    if (released.scope > access.scope || released.group != GroupOf(released.scope, warp->warp)) {
      continue;
    }
    if (is_acquire) {
      if (warp->some_lanes == 0) warp->seen_by_some = warp->seen;
      warp->some_lanes |= 1u << lane;
      Join(released.clocks, &warp->seen_by_some);
    } else {
      Join(released.clocks, &warp->to_fence[IndexOf(released.scope)]);
    }
  }
}

void RaceChecker::Release(WarpClock* warp, uint32_t lane, uint64_t address,
                          const MemoryAccess& access, bool is_atomic) {
  if (access.scope == Scope::kNone) return;
  // A plain write begins a new sequence of releases; a read-modify-write goes on with the old one.
  if (!is_atomic) released_.erase(address);
  const bool is_release = access.order == Order::kRelease || access.order == Order::kBoth;
  ForEachScope(access.scope, [&](Scope scope) {
    const SeenClocks& fenced = warp->fenced[IndexOf(scope)];
    if (!is_release && fenced.empty()) return;
    SeenClocks* const left = ReleasedAt(address, scope, warp->warp);
    if (!is_release) return Join(fenced, left);
    Join((warp->some_lanes >> lane & 1) != 0 ? warp->seen_by_some : warp->seen, left);
    JoinOwn(warp->warp, Seen(warp->clock, lane), left);
  });
  if (is_release) MoveClock(warp);
}

void RaceChecker::Fence(WarpClock* warp, uint32_t lanes, Scope scope) const {
  const auto lane = static_cast<uint32_t>(__builtin_ctz(lanes));
  const bool is_alone = (lanes & (lanes - 1)) == 0;
  ForEachScope(scope, [&](Scope up_to) {
    SeenClocks& found = warp->to_fence[IndexOf(up_to)];
    if (found.empty()) return;
    if (warp->some_lanes == 0) warp->seen_by_some = warp->seen;
    warp->some_lanes |= lanes;
    Join(found, &warp->seen_by_some);
    found.clear();
  });
  ForEachScope(scope, [&](Scope up_to) {
    SeenClocks& fenced = warp->fenced[IndexOf(up_to)];
    fenced = (warp->some_lanes & lanes) != 0 ? warp->seen_by_some : warp->seen;
    JoinOwn(warp->warp, Seen(warp->clock, is_alone ? lane : kAllLanesSeen), &fenced);
  });
  MoveClock(warp);
}

void RaceChecker::SyncLanes(WarpClock* warp) const {
  if (warp->some_lanes != 0) {
    Join(warp->seen_by_some, &warp->seen);
    warp->some_lanes = 0;
  }
  MoveClock(warp);
  warp->synced = warp->clock;
}

void RaceChecker::Arrive(WarpClock* warp, SeenClocks* joined) const {
  SyncLanes(warp);
  Join(warp->seen, joined);
  // Accesses before SyncLanes are known; later ones are not.
  JoinOwn(warp->warp, Seen(warp->clock - 1, kAllLanesSeen), joined);
}

void RaceChecker::Leave(WarpClock* warp, const SeenClocks& joined) const {
  Join(joined, &warp->seen);
}

}  // namespace specd::ptx
