// PieceDecoder gives the bytes of a token as its vocabulary file writes it, for the loader.
//
// A tokenizer.json names a decoder: the steps from pieces to text. Two kinds of decoder can be
// followed piece by piece. ByteLevel writes every byte as a printable character. SentencePiece's
// decoder writes a space as U+2581, and has a piece <0xNN> for each byte; its last step may take
// leading spaces off the text. Every other decoder is refused by name, because to follow it in part
// would give wrong text in silence. Immutable, safe from any thread.
//
//   absl::StatusOr<PieceDecoder> decoder = PieceDecoder::Read(root);   // root of tokenizer.json
//   decoder->Bytes("▁there");                                           // " there"
//   decoder->Bytes("<0xE4>");                                           // "\xE4"
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"

namespace specd {

class PieceDecoder {
 public:
  // Reads the field `decoder`. Errors name the field, the value found and the remedy.
  static absl::StatusOr<PieceDecoder> Read(const simdjson::dom::element& root);

  bool is_byte_level() const { return is_byte_level_; }
  const TextRules& text_rules() const { return rules_; }

  // The bytes of a piece of the model. REQUIRES: piece is valid UTF-8.
  std::string Bytes(std::string_view piece) const;
  // The same of an added token. Byte-level files write its text as it is.
  std::string AddedBytes(std::string_view content) const;

 private:
  explicit PieceDecoder(bool is_byte_level) : is_byte_level_(is_byte_level) {}

  static absl::StatusOr<PieceDecoder> ReadSequence(const simdjson::dom::element& decoder);
  static absl::StatusOr<PieceDecoder> ReadSentencePiece(const simdjson::dom::array& members);

  bool is_byte_level_;
  TextRules rules_;
};

}  // namespace specd
