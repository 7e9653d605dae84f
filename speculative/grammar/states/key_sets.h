// KeySets keeps sets of the keys of frame rules, each once, so that a set is a number.
//
// A LazyAutomaton has in it the keys that an object, or an array of different items, has already.
// The caller locks; if memory runs out, nothing has changed.
//
//   const uint32_t set = sets.With(KeySets::kEmpty, key);
//   KeySets::Has(sets.words(set), key);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "speculative/grammar/base/grammar_memory.h"
#include "speculative/grammar/base/id_table.h"

namespace specd::grammar {

class KeySets {
 public:
  static constexpr uint32_t kEmpty = 0;
  // Bit i % 64 of word i / 64 is that of key i. Words behind the last one are 0.
  using Words = std::span<const uint64_t>;

  // What the sets take is added to `bytes`, which outlives them: an estimate from above.
  explicit KeySets(CountedBytes* bytes) : bytes_(*bytes), ends_(1) {}

  // Valid until the next set is kept.
  Words words(uint32_t set) const {
    const size_t begin = set == 0 ? 0 : ends_[set - 1];
    return Words(words_).subspan(begin, ends_[set] - begin);
  }
  uint32_t With(uint32_t set, uint32_t key);
  // The number of a set that was met elsewhere.
  uint32_t NumberOf(Words words);

  static uint64_t WordAt(Words words, size_t i) { return i < words.size() ? words[i] : 0; }
  static bool Has(Words words, uint32_t key) { return WordAt(words, key / 64) >> key % 64 & 1; }

 private:
  CountedBytes& bytes_;
  std::vector<uint64_t> words_;  // of all sets; no set ends with a word of 0
  std::vector<uint32_t> ends_;   // [set]: behind its words
  IdTable ids_;
  std::vector<uint64_t> scratch_;
};

}  // namespace specd::grammar
