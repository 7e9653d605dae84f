#include "speculative/grammar/base/char_set.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace specd::grammar {
namespace {

constexpr uint32_t kSurrogateFirst = 0xD800;
constexpr uint32_t kSurrogateLast = 0xDFFF;

}  // namespace

CharSet CharSet::Range(uint32_t first, uint32_t last) {
  CharSet set;
  set.Add(first, last);
  return set;
}

void CharSet::Add(uint32_t first, uint32_t last) {
  SPECD_CHECK(first <= last && last <= kCharMax);
  if (first < kSurrogateFirst && last > kSurrogateLast) {
    Add(first, kSurrogateFirst - 1);
    Add(kSurrogateLast + 1, last);
    return;
  }
  if (first >= kSurrogateFirst && first <= kSurrogateLast) first = kSurrogateLast + 1;
  if (last >= kSurrogateFirst && last <= kSurrogateLast) last = kSurrogateFirst - 1;
  if (first > last) return;
  // The first range that touches the new one, and the first after it that does not.
  const auto begin = std::lower_bound(
      ranges_.begin(), ranges_.end(), first,
      [](const CharRange& range, uint32_t value) { return range.last + 1 < value; });
  auto end = begin;
  while (end != ranges_.end() && end->first <= last + 1) ++end;
  if (begin == end) {
    ranges_.insert(begin, {first, last});
    return;
  }
  begin->first = std::min(begin->first, first);
  begin->last = std::max((end - 1)->last, last);
  ranges_.erase(begin + 1, end);
}

void CharSet::Add(const CharSet& other) {
  for (const CharRange& range : other.ranges_) Add(range.first, range.last);
}

CharSet CharSet::Negated() const {
  CharSet set;
  uint32_t next = 0;
  for (const CharRange& range : ranges_) {
    if (range.first > next) set.Add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kCharMax) set.Add(next, kCharMax);
  return set;
}

CharSet CharSet::Without(const CharSet& other) const { return And(other.Negated()); }

CharSet CharSet::And(const CharSet& other) const {
  CharSet set;
  size_t i = 0;
  size_t j = 0;
  while (i < ranges_.size() && j < other.ranges_.size()) {
    const uint32_t first = std::max(ranges_[i].first, other.ranges_[j].first);
    const uint32_t last = std::min(ranges_[i].last, other.ranges_[j].last);
    if (first <= last) set.Add(first, last);
    (ranges_[i].last < other.ranges_[j].last) ? ++i : ++j;
  }
  return set;
}

bool CharSet::Has(uint32_t code_point) const {
  const auto range = std::lower_bound(
      ranges_.begin(), ranges_.end(), code_point,
      [](const CharRange& candidate, uint32_t value) { return candidate.last < value; });
  return range != ranges_.end() && range->first <= code_point;
}

}  // namespace specd::grammar
