// CharSet is a set of Unicode scalar values, for the character classes of grammars.
//
// Surrogates (U+D800 to U+DFFF) are never in a set, because UTF-8 cannot write them. A value type;
// ranges are kept sorted, and no two of them touch.
//
//   CharSet word = CharSet::Range('a', 'z');
//   word.Add('0', '9');
//   word.Negated();   // every other character
#pragma once

#include <cstdint>
#include <utility>

#include "speculative/grammar/base/counted.h"

namespace specd::grammar {

inline constexpr uint32_t kCharMax = 0x10FFFF;

struct CharRange {
  uint32_t first = 0;
  uint32_t last = 0;

  friend bool operator==(const CharRange&, const CharRange&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const CharRange& range) {
    return H::combine(std::move(state), range.first, range.last);
  }
};

class CharSet {
 public:
  CharSet() = default;

  // Both ends are in the set.
  static CharSet Range(uint32_t first, uint32_t last);
  static CharSet One(uint32_t code_point) { return Range(code_point, code_point); }
  static CharSet All() { return Range(0, kCharMax); }

  void Add(uint32_t first, uint32_t last);
  void Add(const CharSet& other);
  CharSet Negated() const;
  CharSet Without(const CharSet& other) const;
  CharSet And(const CharSet& other) const;

  bool Has(uint32_t code_point) const;
  bool IsEmpty() const { return ranges_.empty(); }
  const List<CharRange>& ranges() const { return ranges_; }

  friend bool operator==(const CharSet&, const CharSet&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const CharSet& set) {
    return H::combine(std::move(state), set.ranges_);
  }

 private:
  List<CharRange> ranges_;
};

}  // namespace specd::grammar
