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

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "speculative/grammar/byte_dfa.h"
#include "speculative/grammar/token_trie.h"

namespace specd::grammar {

struct VocabularySlice {
  std::string name;                      // as in "letters 1..8": the characters, and their number
  std::optional<ByteDfa> language = {};  // every token of the slice is one of its texts
  // One bit for each id below vocab_size: bit i % 32 of word i / 32.
  std::vector<uint32_t> mask = {};
  TokenTrie tokens = {};

  size_t num_tokens() const { return tokens.tokens().size(); }
};

// Each token is in the first slice whose language has it. A slice that would be empty is left out;
// the last slice, which has no language, is always there.
std::vector<VocabularySlice> MakeVocabularySlices(const TokenTrie& trie);

}  // namespace specd::grammar
