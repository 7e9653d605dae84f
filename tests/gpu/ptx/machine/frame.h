// Frame is one call of a function by lanes of a warp: its registers, and where its lanes are.
//
// Warp makes and ends frames; handlers of instructions read and write their registers.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

// Lanes of a call that are at one place.
struct Fragment {
  int32_t pc = 0;
  uint32_t lanes = 0;
};

inline constexpr int32_t kNowhere = INT32_MAX;

struct Frame {
  const Function* function = nullptr;
  std::byte* registers = nullptr;
  uint32_t* predicates = nullptr;
  uint32_t carry = 0;         // CC.CF of each lane
  int32_t params_offset = 0;  // in the lanes' local memory
  int32_t locals_offset = 0;
  size_t registers_before = 0;  // of the arena, to be used again after the call
  size_t local_before = 0;

  uint32_t lanes = 0;  // that were called
  // The lanes that run, the place where they are, and the nearest place behind it where others wait
  // to be met.
  int32_t pc = 0;
  uint32_t current = 0;
  int32_t next_meeting = kNowhere;
  std::vector<Fragment> others;    // may run
  std::vector<Fragment> waiting;   // for lanes that an instruction brings together
  std::vector<Fragment> deferred;  // stand before a call and let the others come to it
  bool calls_alone = false;        // no other lane can come to the call any more
  uint32_t calling = 0;            // the lanes of a call under way

  template <typename Slot>
  Slot* At(int32_t slot) {
    return reinterpret_cast<Slot*>(registers + slot);
  }
  template <typename Slot>
  const Slot* Source(int32_t slot) const {
    return reinterpret_cast<const Slot*>(slot >= 0 ? registers + slot
                                                   : function->constants.data() + ~slot);
  }
  uint32_t Predicate(int32_t slot) const {
    const uint32_t value = predicates[slot & ~kNegated];
    return (slot & kNegated) != 0 ? ~value : value;
  }
  void SetPredicate(int32_t slot, uint32_t of_lanes, uint32_t value) {
    predicates[slot] = (predicates[slot] & ~of_lanes) | (value & of_lanes);
  }
};

// Calls `function` with each of the lanes, from the lowest on.
template <typename LaneFunction>
void ForEachLane(uint32_t lanes, const LaneFunction& function) {
  for (; lanes != 0; lanes &= lanes - 1) function(static_cast<uint32_t>(__builtin_ctz(lanes)));
}

}  // namespace specd::ptx
