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
#include <iterator>
#include <string>
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
  bool IsFull() const { return std::ssize(ids_) == eos_id_; }
  // Adds a piece, or four of a word, that are new, unless the vocabulary is full.
  void Add(const std::string& piece);
  void AddWord(const std::string& word);
  void AddCommon();  // pieces that every such vocabulary has
  void AddDrawn();   // until the vocabulary is full

  TokenId eos_id_;
  absl::flat_hash_map<std::string, TokenId> ids_;
  size_t longest_ = 0;
  Vocabulary::Builder builder_;
  Vocabulary vocabulary_;
};

// The tokenizer.json of such a vocabulary, in the style of byte-level BPE.
std::string TokenizerJson(const Vocabulary& vocabulary);

}  // namespace specd::bench
