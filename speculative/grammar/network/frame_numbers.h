// FrameNumbers are the two numbers of a frame on the stack of a LazyAutomaton: how far a counted
// repetition, or the members of an object, have come.
//
// NetworkFrame holds what stays the same: bounds, and the nodes where parts begin. Its functions
// say what may follow a part of a repetition; MemberPlace (member_place.h) says it of members.
// Plain data, for any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/rules/frame_rule.h"

namespace specd::grammar {

struct FrameNumbers {
  // kCount: how many more parts must come, and may come, after the part that is read now.
  // kMembers: the first key that may still come, or, in any order, the set of the keys that came,
  // both with kMet if the need is met and kClosed if no member may follow; and how many members
  // were written. Behind the keys is the place of the others.
  uint32_t first = 0;
  uint32_t second = 0;

  friend bool operator==(const FrameNumbers&, const FrameNumbers&) = default;
};

struct NetworkFrame {
  static constexpr uint32_t kNoNode = ~uint32_t{0};

  FrameRule::Kind kind = FrameRule::Kind::kNone;
  uint32_t min = 0;
  uint32_t max = kUnbounded;
  uint32_t part = kNoNode;  // the start of the part, or the root of the keys' tree
  // The rest is of kMembers.
  bool any_order = false;
  bool has_values = true;
  uint32_t separator = kNoNode;
  uint32_t other = kNoNode;
  bool has_need = false;
  uint32_t needed_other = kNoNode;
  List<uint32_t> values = {};         // [key]; kNoNode without values
  List<uint32_t> needed_values = {};  // [key]; kNoNode: none meets the need
  uint32_t needed_keys_end = 0;       // behind the last key that has one
  // [key], and a place behind: the first required key from there on, or the number of keys; how
  // many are required.
  List<uint32_t> next_required = {};
  List<uint32_t> num_required = {};
  // In any order, as words of KeySets: the required keys, and those with a value for the need.
  List<uint64_t> required_keys = {};
  List<uint64_t> needed_keys = {};

  uint32_t num_keys() const { return static_cast<uint32_t>(values.size()); }

  // ---- kCount

  FrameNumbers Begin() const {
    return {.first = std::max<uint32_t>(min, 1) - 1, .second = Less(max)};
  }
  // REQUIRES: numbers.second > 0.
  static FrameNumbers AfterPart(FrameNumbers numbers) {
    return {.first = std::max<uint32_t>(numbers.first, 1) - 1, .second = Less(numbers.second)};
  }
  // Two counts allow the numbers of parts from first to second. True if together they leave no gap.
  static bool Touch(FrameNumbers a, FrameNumbers b) {
    return uint64_t{b.first} <= uint64_t{a.second} + 1 &&
           uint64_t{a.first} <= uint64_t{b.second} + 1;
  }
  static FrameNumbers Join(FrameNumbers a, FrameNumbers b) {
    return {.first = std::min(a.first, b.first), .second = std::max(a.second, b.second)};
  }
  // The numbers that allow the same texts of up to `bytes_max` bytes: a part has a byte or more.
  static FrameNumbers Near(FrameNumbers numbers, uint32_t bytes_max) {
    return {.first = std::min(numbers.first, bytes_max + 1),
            .second = numbers.second > bytes_max ? kUnbounded : numbers.second};
  }

 private:
  static uint32_t Less(uint32_t count) { return count == kUnbounded ? kUnbounded : count - 1; }
};

}  // namespace specd::grammar
