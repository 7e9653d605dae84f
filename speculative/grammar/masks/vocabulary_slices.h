// VocabularySlices cuts a tokenizer's tokens into families of simple texts, so that most masks need
// no walk over most tokens.
//
// Inside a JSON string a grammar allows almost every text. If it allows all texts of a family's
// characters up to some length, the mask of the family's tokens up to that length is taken as it
// is. A token that may only begin a text of the family, because its last character is not complete,
// is in the family too. A walk over tokens that no family decides goes slice by slice. Immutable;
// any number of threads may read it.
//
//   const VocabularySlices vocabulary = MakeVocabularySlices(trie);
//   const TokenFamily& family = vocabulary.families[0];
//   if (AllowsAllTexts(state, family, 3)) Add(family.MaskOf(3));
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/byte_set.h"
#include "speculative/grammar/masks/token_trie.h"

namespace specd::grammar {

struct TokenFamily {
  // Up to this many characters each number has a mask. Few tokens have more.
  static constexpr uint32_t kCharactersMax = 16;

  std::string name;
  // A text is one character of `first`, and any number of `other`. A text of either has one
  // character: where it is complete, its automaton has no way on.
  ByteDfa first;
  ByteDfa other;
  ByteSet first_bytes;  // that begin them
  ByteSet other_bytes;
  // The families whose texts are texts of this one too, itself included; empty ones are left out.
  std::vector<size_t> contained = {};
  // The tokens of these families. `mask_of` has the place in `masks` of those of up to so many
  // characters; behind kCharactersMax is that of all.
  std::vector<std::vector<uint32_t>> masks = {};
  std::vector<size_t> mask_of = {};

  // `count` may be kUnbounded.
  const std::vector<uint32_t>& MaskOf(uint32_t count) const {
    return masks[mask_of[std::min(count, kCharactersMax + 1)]];
  }
};

struct VocabularySlice {
  static constexpr size_t kNoFamily = ~size_t{0};

  // What comes below a node, for those who meet it in the middle of a walk.
  struct Below {
    // Every text that comes below the node is of this family, whose `first` does not count here. Of
    // several such families it is the smallest. kNoFamily: there is none, or a walk is as fast.
    size_t family = kNoFamily;
    uint32_t characters_max = 0;
  };

  std::string name;           // as in "letters 1..8": the characters, and their number
  size_t family = kNoFamily;  // the first one that has the tokens
  uint32_t characters_max = 0;
  TokenTrie tokens = {};
  std::vector<Below> below = {};  // by branch of `tokens`

  size_t num_tokens() const { return tokens.tokens().size(); }
};

struct VocabularySlices {
  std::vector<TokenFamily> families;  // the smaller language first
  // Each token is in one. A slice that would be empty is left out; the last slice, of the tokens
  // that no family has, is always there.
  std::vector<VocabularySlice> slices;
};

VocabularySlices MakeVocabularySlices(const TokenTrie& trie);

}  // namespace specd::grammar
