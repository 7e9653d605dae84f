// MemberPlace says which members may follow at a place among the members of an object.
//
// Keys come in the order of the frame, or in any order. In the first case the place knows the first
// key that may still come, in the second the set of those that came. From each place that these
// functions lead to, the members can be completed. A view of a frame and of sets, for one question
// and the next: keeping a set ends it.
#pragma once

#include <cstdint>
#include <span>

#include "speculative/grammar/network/frame_numbers.h"
#include "speculative/grammar/states/key_sets.h"

namespace specd::grammar {

// The keys that may come next.
struct NextKeys {
  uint32_t begin = 0;
  uint32_t end = 0;
  // In any order: not these, and if `asked` is not empty, these alone.
  KeySets::Words written = {};
  KeySets::Words asked = {};

  bool Has(uint32_t key) const {
    return begin <= key && key < end && !KeySets::Has(written, key) &&
           (asked.empty() || KeySets::Has(asked, key));
  }
  // Of the keys from `first` up to `last`.
  bool HasAnyIn(uint32_t first, uint32_t last) const;
  // Of the keys of a node: in any order they are neighbours.
  bool HasAnyOf(std::span<const uint32_t> sorted) const;
  bool IsEmpty() const { return !HasAnyIn(begin, end); }
};

class MemberPlace {
 public:
  MemberPlace(const NetworkFrame& frame, FrameNumbers numbers, const KeySets& sets);

  // Before the first member.
  static FrameNumbers Begin(const NetworkFrame& frame) {
    return {.first = frame.has_need ? 0 : kMet};
  }

  NextKeys Keys() const;
  bool AllowsOther() const;
  // One of the others that meets the need. It is the last member: a later one could have its name.
  bool AllowsNeededOther() const;
  bool AllowsMore() const { return !Keys().IsEmpty() || AllowsOther() || AllowsNeededOther(); }
  bool AllowsEnd() const;
  // The need is met, or a later member may still meet it.
  bool MayBeMet() const;

  // With a value that need not meet the need.
  FrameNumbers AfterKey(uint32_t key, KeySets* sets) const;
  FrameNumbers AfterOther() const;
  FrameNumbers AfterNeededOther() const;
  static FrameNumbers Met(FrameNumbers numbers) {
    numbers.first |= kMet;
    return numbers;
  }
  static bool IsMet(FrameNumbers numbers) { return (numbers.first & kMet) != 0; }
  // The same place in an automaton with other sets: `numbers` are of a frame in any order.
  static uint32_t SetOf(FrameNumbers numbers) { return numbers.first & ~kFlags; }
  static FrameNumbers WithSet(FrameNumbers numbers, uint32_t set) {
    numbers.first = (numbers.first & kFlags) | set;
    return numbers;
  }

 private:
  static constexpr uint32_t kMet = uint32_t{1} << 31;
  static constexpr uint32_t kClosed = uint32_t{1} << 30;
  static constexpr uint32_t kFlags = kMet | kClosed;

  bool IsMet() const { return IsMet(numbers_); }
  bool IsClosed() const { return (numbers_.first & kClosed) != 0; }
  uint32_t first() const { return numbers_.first & ~kFlags; }
  NextKeys KeysInOrder() const;
  bool HasNeededKeyLeft() const;
  // Counts are told apart up to the bounds.
  uint32_t OneMore() const;

  const NetworkFrame& frame_;
  const FrameNumbers numbers_;
  const KeySets::Words written_;  // in any order
  uint32_t num_required_ = 0;     // keys that must still come
};

}  // namespace specd::grammar
