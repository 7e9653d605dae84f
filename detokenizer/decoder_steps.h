// DecoderStep is one step of the decoder of a tokenizer.json, as PieceDecoder applies it to a
// piece.
//
// The steps are those of Hugging Face tokenizers, release 0.23. Pure functions, safe from any
// thread.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace specd {

// The bytes of a piece after the steps so far.
struct PieceText {
  std::string bytes;
  std::string front;     // where the piece is the first of a text
  bool is_byte = false;  // a byte of a character; later steps leave it alone
};

struct DecoderStep {
  enum class Kind : uint8_t {
    kByteLevel,
    kByteFallback,
    kReplace,      // `from` by `to`
    kStrip,        // up to `start` of the character `from` at the front, up to `stop` at the end
    kFuse,         // joins all pieces
    kMetaspace,    // each `from` is a space; the first piece loses its if `is_first_other`
    kWordPiece,    // `from` begins a piece that continues a word; cleans up if `cleanup`
    kSuffix,       // BPEDecoder: `from` ends a word
    kJoinBySpace,  // no decoder
  };

  Kind kind = Kind::kFuse;
  std::string from = {};
  std::string to = {};
  uint32_t start = 0;
  uint32_t stop = 0;
  bool is_first_other = false;
  bool cleanup = false;
};

// `field` is the path of the step, for errors.
absl::StatusOr<DecoderStep> ReadDecoderStep(const simdjson::dom::element& step,
                                            std::string_view field);

// Changes the text of one piece as the step does.
void ApplyStep(const DecoderStep& step, PieceText* text);

// The byte of a piece such as <0x0A>.
std::optional<char> ByteOfPiece(std::string_view piece);

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
// `text` with `to` for each `from`. REQUIRES: from is not empty.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

// The refusal of a decoder that cannot be followed, with the remedy.
absl::Status UnsupportedDecoder(std::string_view text);

}  // namespace specd
