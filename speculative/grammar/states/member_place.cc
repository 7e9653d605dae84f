#include "speculative/grammar/states/member_place.h"

#include <algorithm>
#include <bit>

namespace specd::grammar {

bool NextKeys::HasAnyIn(uint32_t first, uint32_t last) const {
  first = std::max(first, begin);
  last = std::min(last, end);
  if (first >= last) return false;
  const size_t last_word = (last - 1) / 64;
  for (size_t i = first / 64; i <= last_word; ++i) {
    uint64_t open = ~KeySets::WordAt(written, i);
    if (!asked.empty()) open &= KeySets::WordAt(asked, i);
    if (i == first / 64) open &= ~uint64_t{0} << first % 64;
    if (i == last_word) open &= ~uint64_t{0} >> (63 - (last - 1) % 64);
    if (open != 0) return true;
  }
  return false;
}

bool NextKeys::HasAnyOf(std::span<const uint32_t> sorted) const {
  if (!written.empty() || !asked.empty()) return HasAnyIn(sorted.front(), sorted.back() + 1);
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), begin);
  return found != sorted.end() && *found < end;
}

MemberPlace::MemberPlace(const NetworkFrame& frame, FrameNumbers numbers, const KeySets& sets)
    : frame_(frame),
      numbers_(numbers),
      written_(frame.any_order ? sets.words(SetOf(numbers)) : KeySets::Words()) {
  if (!frame.any_order) {
    num_required_ = frame.num_required[first()];
    return;
  }
  for (size_t i = 0; i < frame.required_keys.size(); ++i) {
    const uint64_t left = frame.required_keys[i] & ~KeySets::WordAt(written_, i);
    num_required_ += static_cast<uint32_t>(std::popcount(left));
  }
}

NextKeys MemberPlace::Keys() const {
  if (IsClosed() || numbers_.second >= frame_.max) return {};
  if (!frame_.any_order) return KeysInOrder();
  // Whichever key comes, the others are there for the minimum, and those of the need for the need.
  NextKeys keys = {.begin = 0, .end = frame_.num_keys(), .written = written_};
  // What is left below the maximum is for the required keys.
  const bool is_tight = uint64_t{numbers_.second} + num_required_ >= frame_.max;
  if (is_tight) keys.asked = frame_.required_keys;
  return keys;
}

NextKeys MemberPlace::KeysInOrder() const {
  if (first() >= frame_.num_keys()) return {};
  const uint32_t required = frame_.next_required[first()];
  NextKeys keys = {.begin = first(), .end = std::min(required + 1, frame_.num_keys())};
  // What is left below the maximum is for the required keys.
  if (uint64_t{numbers_.second} + 1 + num_required_ > frame_.max) keys.begin = required;
  // Behind the key there are enough others up to the minimum.
  const uint64_t most = uint64_t{numbers_.second} + frame_.num_keys() +
                        (frame_.other != NetworkFrame::kNoNode ? 1 : 0);
  if (most < frame_.min) return {};
  keys.end = static_cast<uint32_t>(std::min<uint64_t>(keys.end, most - frame_.min + 1));
  // It, or a later one, meets the need.
  if (!IsMet() && frame_.needed_other == NetworkFrame::kNoNode) {
    keys.end = std::min(keys.end, frame_.needed_keys_end);
  }
  return keys;
}

bool MemberPlace::HasNeededKeyLeft() const {
  if (!frame_.any_order) return first() < frame_.needed_keys_end;
  for (size_t i = 0; i < frame_.needed_keys.size(); ++i) {
    if ((frame_.needed_keys[i] & ~KeySets::WordAt(written_, i)) != 0) return true;
  }
  return false;
}

bool MemberPlace::MayBeMet() const {
  if (IsMet()) return true;
  const bool may_follow = frame_.needed_other != NetworkFrame::kNoNode || HasNeededKeyLeft();
  return may_follow && numbers_.second < frame_.max;
}

bool MemberPlace::AllowsOther() const {
  if (frame_.other == NetworkFrame::kNoNode || IsClosed()) return false;
  const bool is_early = !frame_.any_order && num_required_ > 0;  // the keys come before it
  if (is_early || uint64_t{numbers_.second} + num_required_ >= frame_.max) return false;
  if (IsMet()) return true;
  // A later member has to meet the need. In any order a key for it is left, or there is such
  // another.
  const bool may_follow = frame_.any_order || frame_.needed_other != NetworkFrame::kNoNode;
  return may_follow && uint64_t{numbers_.second} + 1 < frame_.max;
}

bool MemberPlace::AllowsNeededOther() const {
  return frame_.needed_other != NetworkFrame::kNoNode && !IsMet() && num_required_ == 0 &&
         numbers_.second < frame_.max;
}

bool MemberPlace::AllowsEnd() const {
  return IsMet() && num_required_ == 0 && numbers_.second >= frame_.min;
}

uint32_t MemberPlace::OneMore() const {
  return std::min(numbers_.second + 1, frame_.max == kUnbounded ? frame_.min : frame_.max);
}

FrameNumbers MemberPlace::AfterKey(uint32_t key, KeySets* sets) const {
  const uint32_t next = frame_.any_order ? sets->With(first(), key) : key + 1;
  return {.first = next | (numbers_.first & kFlags), .second = OneMore()};
}

FrameNumbers MemberPlace::AfterOther() const {
  const uint32_t next = frame_.any_order ? first() : frame_.num_keys();
  return {.first = next | (numbers_.first & kFlags), .second = OneMore()};
}

FrameNumbers MemberPlace::AfterNeededOther() const {
  FrameNumbers after = AfterOther();
  after.first |= kMet | kClosed;
  return after;
}

}  // namespace specd::grammar
