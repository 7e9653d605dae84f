// BpeEncoder turns text into token ids and back for the toy engine, with a byte-level BPE in
// GPT-2's style from a tokenizer.json.
//
//   absl::StatusOr<BpeEncoder> encoder = BpeEncoder::Load("tools/toy_engine/tokenizer.json");
//   std::vector<int32_t> ids = encoder->Encode("The daemon");
//
// An engine tokenizes its prompts itself: specd only turns ids into text.
//
// Text is text: "<|endoftext|>" in a prompt is encoded as its characters and never as the special
// token (the library tokenizers calls that encode_special_tokens=True). No prompt can therefore end
// its own stream.
//
// Immutable once made; may be used by several threads at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/toy_engine/bpe_vocabulary.h"

namespace specd::toy {

class BpeEncoder {
 public:
  static absl::StatusOr<BpeEncoder> Load(const std::string& path);

  explicit BpeEncoder(BpeVocabulary vocabulary);

  std::vector<int32_t> Encode(std::string_view text) const;

  // The bytes of the ids. Special tokens and ids outside the vocabulary give no bytes. A character
  // whose last token is missing stays incomplete.
  std::string Decode(const std::vector<int32_t>& ids) const;

  std::optional<int32_t> FindSpecialToken(std::string_view content) const;

  // One more than the largest id: the width of a logits row.
  int32_t vocab_size() const { return static_cast<int32_t>(vocabulary_.bytes.size()); }

 private:
  void EncodePiece(std::string_view piece, std::vector<int32_t>* ids) const;

  BpeVocabulary vocabulary_;
};

}  // namespace specd::toy
