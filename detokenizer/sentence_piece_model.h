// ParseSentencePieceModel reads a SentencePiece model (tokenizer.model) into a Vocabulary, at
// start-up.
//
// The file is a protobuf message, sentencepiece_model.proto. Unigram, BPE, word and character
// models decode alike. Control pieces are special tokens; SentencePiece shows none of them. The
// unknown piece shows the model's unk_surface. An error names the file, the field, the value found
// and the remedy. Safe from any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "detokenizer/vocabulary.h"

namespace specd {

// True if the first bytes are those of a SentencePiece model.
bool IsSentencePieceModel(std::string_view bytes);

// Errors begin with `name`, the path of the file.
absl::StatusOr<Vocabulary> ParseSentencePieceModel(std::string_view bytes, std::string_view name);

// The kinds of a piece, by the numbers of the file. GGUF files use them, too.
enum class PieceType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// What SentencePiece's decoder does at the front of a text.
struct FrontSpaces {
  bool strips_first = true;  // the first piece loses one leading space
  bool strips_all = false;   // so does each piece before the first text
};

// Adds a piece of this text, in which U+2581 is a space. REQUIRES: `text` is short enough for a
// token, and the id is free.
void AddSentencePiece(TokenId id, std::string_view text, TokenFlags flags,
                      const FrontSpaces& spaces, Vocabulary::Builder* builder);
TextRules SentencePieceRules(const FrontSpaces& spaces);

}  // namespace specd
