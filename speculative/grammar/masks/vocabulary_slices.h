// VocabularySlice is a part of a tokenizer's tokens that one simple language contains.
//
// Inside a JSON string a grammar allows almost every text. If the texts that it allows contain the
// language of a slice, its whole mask is allowed, and no walk over its tokens is needed. The last
// slice has the tokens that no language contains, such as parts of UTF-8 characters. Immutable; any
// number of threads may read.
//
//   for (const VocabularySlice& slice : MakeVocabularySlices(trie)) {
//     if (slice.language.has_value() && Contains(state, *slice.language)) Add(slice.mask);
//     else Walk(slice.tokens);
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/byte_set.h"
#include "speculative/grammar/masks/token_trie.h"

namespace specd::grammar {

struct VocabularySlice {
  std::string name;                      // as in "letters 1..8": the characters, and their number
  std::optional<ByteDfa> language = {};  // every token of the slice is one of its texts
  // One bit for each id below vocab_size: bit i % 32 of word i / 32.
  std::vector<uint32_t> mask = {};
  TokenTrie tokens = {};
  ByteSet first_bytes = {};     // of the tokens
  size_t family = 0;            // its characters, for SliceCover
  uint32_t characters_max = 0;  // of a token; kUnbounded: any number

  size_t num_tokens() const { return tokens.tokens().size(); }
};

// SliceCover is a language that contains the languages of many slices. One look at it answers for
// all of them: a string without a bound on its length allows each. The short language has texts of
// few characters: a string with a bound allows it, until its end is near.
struct SliceCover {
  struct Part {
    ByteDfa language;
    std::vector<bool> slices;    // those that it contains
    std::vector<uint32_t> mask;  // of their tokens
  };
  Part any_length;
  Part short_texts;
};

// The largest language first.
std::vector<SliceCover> MakeSliceCovers(std::span<const VocabularySlice> slices);

// Each token is in the first slice whose language has it. A slice that would be empty is left out;
// the last slice, which has no language, is always there.
std::vector<VocabularySlice> MakeVocabularySlices(const TokenTrie& trie);

}  // namespace specd::grammar
