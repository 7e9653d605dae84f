// FrameNumbers are the two numbers of a frame on the stack of a LazyAutomaton: how far a counted
// repetition, or the members of an object, have come.
//
// NetworkFrame holds what stays the same: bounds, and the nodes where parts begin. Its functions
// say what may follow. Plain data, for any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "speculative/grammar/counted.h"
#include "speculative/grammar/frame_rule.h"

namespace specd::grammar {

struct FrameNumbers {
  // kCount: how many more parts must come, and may come, after the part that is read now.
  // kMembers: the first key that may still come, with kMet if the need is met, and how many members
  // were written. Behind the keys is the place of the others, and behind that the end.
  uint32_t first = 0;
  uint32_t second = 0;

  friend bool operator==(const FrameNumbers&, const FrameNumbers&) = default;
};

struct NetworkFrame {
  static constexpr uint32_t kNoNode = ~uint32_t{0};
  static constexpr uint32_t kMet = uint32_t{1} << 31;

  FrameRule::Kind kind = FrameRule::Kind::kNone;
  uint32_t min = 0;
  uint32_t max = kUnbounded;
  uint32_t part = kNoNode;  // the start of the part, or the root of the keys' tree
  // The rest is of kMembers.
  uint32_t separator = kNoNode;
  uint32_t other = kNoNode;
  bool has_need = false;
  uint32_t needed_other = kNoNode;
  List<uint32_t> values = {};         // [key]
  List<uint32_t> needed_values = {};  // [key]; kNoNode: none meets the need
  uint32_t needed_keys_end = 0;       // behind the last key that has one
  // [key], and two places behind: the first required key from there on, or the number of keys; how
  // many are required.
  List<uint32_t> next_required = {};
  List<uint32_t> num_required = {};

  // ---- kCount

  FrameNumbers Begin() const {
    if (kind == FrameRule::Kind::kMembers) return {.first = has_need ? 0 : kMet};
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

  // ---- kMembers

  uint32_t num_keys() const { return static_cast<uint32_t>(values.size()); }
  // The keys that may come next: begin up to end.
  struct Keys {
    uint32_t begin = 0;
    uint32_t end = 0;

    // `keys` are sorted.
    bool HasAnyOf(std::span<const uint32_t> keys) const {
      const auto found = std::lower_bound(keys.begin(), keys.end(), begin);
      return found != keys.end() && *found < end;
    }
  };
  Keys NextKeys(FrameNumbers numbers) const;
  bool AllowsOther(FrameNumbers numbers) const {
    const bool is_early = num_required[KeyOf(numbers)] > 0 || numbers.second >= max;
    const bool is_late = KeyOf(numbers) > num_keys();
    return other != kNoNode && !is_early && !is_late && MayBeMet(AfterOther(numbers));
  }
  // One of the others that meets the need. It is the last member: a later one could have its name.
  bool AllowsNeededOther(FrameNumbers numbers) const {
    return needed_other != kNoNode && !IsMet(numbers) && num_required[KeyOf(numbers)] == 0 &&
           numbers.second < max;
  }
  bool AllowsMore(FrameNumbers numbers) const {
    const Keys keys = NextKeys(numbers);
    return keys.begin < keys.end || AllowsOther(numbers) || AllowsNeededOther(numbers);
  }
  bool AllowsEnd(FrameNumbers numbers) const {
    return IsMet(numbers) && num_required[KeyOf(numbers)] == 0 && numbers.second >= min;
  }
  // With a value that need not meet the need.
  FrameNumbers AfterKey(uint32_t key, FrameNumbers numbers) const {
    return {.first = (key + 1) | (numbers.first & kMet), .second = OneMore(numbers.second)};
  }
  FrameNumbers AfterOther(FrameNumbers numbers) const {
    return {.first = num_keys() | (numbers.first & kMet), .second = OneMore(numbers.second)};
  }
  FrameNumbers AfterNeededOther(FrameNumbers numbers) const {
    return {.first = (num_keys() + 1) | kMet, .second = OneMore(numbers.second)};
  }
  static FrameNumbers Met(FrameNumbers numbers) {
    numbers.first |= kMet;
    return numbers;
  }
  static bool IsMet(FrameNumbers numbers) { return (numbers.first & kMet) != 0; }
  // The need is met, or a later member may still meet it.
  bool MayBeMet(FrameNumbers numbers) const {
    const bool may_follow = needed_other != kNoNode || KeyOf(numbers) < needed_keys_end;
    return IsMet(numbers) || (may_follow && numbers.second < max);
  }

 private:
  static uint32_t KeyOf(FrameNumbers numbers) { return numbers.first & ~kMet; }
  static uint32_t Less(uint32_t count) { return count == kUnbounded ? kUnbounded : count - 1; }
  // Counts are told apart up to the bounds.
  uint32_t OneMore(uint32_t written) const {
    return std::min(written + 1, max == kUnbounded ? min : max);
  }
};

inline NetworkFrame::Keys NetworkFrame::NextKeys(FrameNumbers numbers) const {
  const uint32_t first = KeyOf(numbers);
  if (first >= num_keys() || numbers.second >= max) return {};
  const uint32_t required = next_required[first];
  Keys keys = {.begin = first, .end = std::min(required + 1, num_keys())};
  // What is left below the maximum is for the required keys.
  if (uint64_t{numbers.second} + 1 + num_required[first] > max) keys.begin = required;
  // Behind the key there are enough others up to the minimum.
  const uint64_t most = uint64_t{numbers.second} + num_keys() + (other != kNoNode ? 1 : 0);
  if (most < min) return {};
  keys.end = static_cast<uint32_t>(std::min<uint64_t>(keys.end, most - min + 1));
  // It, or a later one, meets the need.
  if (!IsMet(numbers) && needed_other == kNoNode) keys.end = std::min(keys.end, needed_keys_end);
  return keys;
}

}  // namespace specd::grammar
