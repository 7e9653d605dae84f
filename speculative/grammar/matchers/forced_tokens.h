// ForcedTokenFinder cuts the text that a grammar forces into tokens, to be drafted before a model
// runs.
//
// It takes the longest token that fits, again and again. It ends early where a longer token could
// reach past the end of the forced text, because the model would take that one. The tokens are
// drafts: the verifier judges each of them, and committed ids never change. Immutable; safe from
// any number of threads.
//
//   const ForcedTokenFinder finder(TokenTrie::Build(vocabulary, vocab_size));
//   const std::vector<TokenId> drafts = finder.Find(*matcher, 8);
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "speculative/grammar/masks/token_trie.h"
#include "speculative/grammar/matchers/grammar_matcher.h"

namespace specd::grammar {

class ForcedTokenFinder {
 public:
  explicit ForcedTokenFinder(TokenTrie trie) : trie_(std::move(trie)) {}

  // At most `num_max` ids, which the matcher accepts one after another. The matcher does not move.
  std::vector<TokenId> Find(const GrammarMatcher& matcher, size_t num_max) const;

 private:
  // The tokens that a text begins with, from the shortest to the longest.
  struct Prefixes {
    struct Prefix {
      uint32_t node = 0;
      size_t size_bytes = 0;
    };
    std::vector<Prefix> found;
    // Tokens that begin with the whole text and are longer.
    std::vector<TokenId> longer;
  };

  Prefixes Follow(std::string_view text) const;
  // Advances over the longest of the prefixes that the matcher accepts. Returns its id and length;
  // a length of 0 if there is none.
  std::pair<TokenId, size_t> Take(const Prefixes& prefixes, GrammarMatcher* matcher) const;

  const TokenTrie trie_;
};

}  // namespace specd::grammar
