// SyntheticVocabulary makes a vocabulary like that of a large model, for benchmarks of grammars.
//
// Its pieces are those that byte-level BPE learns: bytes, words with and without a space before
// them, runs of digits, of punctuation and of whitespace, characters of other scripts, and parts of
// characters. They are generated, always the same ones, and belong to no model. Tokenize takes the
// longest piece at each place. Immutable; any number of threads may read it.
//
//   const SyntheticVocabulary made(128256);
//   const std::vector<TokenId> ids = made.Tokenize(R"({"name": "Ada"})");
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "detokenizer/vocabulary.h"
#include "kernels/core/types.h"

namespace specd::bench {

class SyntheticVocabulary {
 public:
  // Bytes, and room for some words.
  static constexpr int32_t kSizeMin = 512;

  // REQUIRES: kSizeMin <= size <= kVocabSizeMax.
  explicit SyntheticVocabulary(int32_t size);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // The last ids are special tokens; this is the first of them.
  TokenId eos_id() const { return eos_id_; }
  // Every byte is a token, so each text has tokens.
  std::vector<TokenId> Tokenize(std::string_view text) const;

 private:
  TokenId eos_id_;
  Vocabulary vocabulary_;
  absl::flat_hash_map<std::string_view, TokenId> ids_;  // views of vocabulary_
  size_t longest_ = 0;
};

}  // namespace specd::bench
