// PieceDecoder gives the bytes of a token as its vocabulary file writes it, for the loader.
//
// A tokenizer.json names a decoder: the steps from pieces to text. A step that changes each piece
// by itself is done once, here. Some steps treat the first token of a text in another way, so a
// piece may have other bytes at the front. What a step does to the joined text becomes TextRules. A
// decoder that cannot be followed so is refused by name, because to follow it in part would give
// wrong text in silence. Immutable, safe from any thread.
//
//   absl::StatusOr<PieceDecoder> decoder = PieceDecoder::Read(root);   // root of tokenizer.json
//   decoder->Decode("▁there", {})->bytes;                               // " there"
//   decoder->Decode("<0xE4>", {})->bytes;                               // "\xE4"
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "detokenizer/decoder_steps.h"
#include "detokenizer/vocabulary.h"

namespace specd {

class PieceDecoder {
 public:
  // Reads the field `decoder`. Errors name the field, the value found and the remedy.
  static absl::StatusOr<PieceDecoder> Read(const simdjson::dom::element& root);

  const TextRules& text_rules() const { return rules_; }

  // The text of a piece. Byte-level files write an added token's text as it is. REQUIRES: piece is
  // valid UTF-8. Errors name the piece.
  absl::StatusOr<PieceText> Decode(std::string_view piece, bool is_added) const;

 private:
  absl::Status Add(const simdjson::dom::element& step, std::string_view field);
  absl::Status AddToText(const DecoderStep& step, std::string_view field);
  absl::Status CheckOrder(const DecoderStep& step, std::string_view field) const;
  bool Has(DecoderStep::Kind kind) const;

  std::vector<DecoderStep> steps_;  // of each piece
  TextRules rules_;
  bool is_joined_ = false;  // the steps to come are those of the whole text
};

}  // namespace specd
