// Writes tokenizer files of every format from a list of pieces, for tests of their loaders.
//
// The layouts are those of SentencePiece's schema and of the specification of GGUF.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "detokenizer/text_stream.h"
#include "detokenizer/tokenizer_file.h"
#include "tests/support/mentions.h"
#include "tests/support/temporary_folder.h"

namespace specd::format_files {

// The types of SentencePiece, which GGUF files have, too.
enum Type : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Piece {
  std::string text;
  uint8_t type = kNormal;
};

template <typename Number>
std::string Raw(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// Protobuf: a field of bytes, shorter than 128, and one of a number below 128.
inline std::string BytesField(uint8_t number, const std::string& bytes) {
  return Raw(static_cast<uint8_t>(number << 3 | 2)) + Raw(static_cast<uint8_t>(bytes.size())) +
         bytes;
}
inline std::string NumberField(uint8_t number, uint8_t value) {
  return Raw(static_cast<uint8_t>(number << 3)) + Raw(value);
}

// `normalizer` is the message normalizer_spec.
inline std::string SentencePieceModel(const std::vector<Piece>& pieces,
                                      const std::string& normalizer) {
  std::string model;
  for (const Piece& piece : pieces) {
    model +=
        BytesField(1, BytesField(1, piece.text) + "\x15" + Raw(-1.5F) + NumberField(3, piece.type));
  }
  return model + BytesField(3, normalizer);
}
inline std::string Normalizer(bool add_dummy_prefix, bool remove_extra_whitespaces) {
  return NumberField(3, add_dummy_prefix) + NumberField(4, remove_extra_whitespaces);
}

inline std::string GgufString(const std::string& text) { return Raw(uint64_t{text.size()}) + text; }
// A key with the type of its value and the value's bytes.
inline std::string GgufKey(const std::string& key, uint32_t type, const std::string& value) {
  return GgufString(key) + Raw(type) + value;
}
inline std::string GgufFile(const std::vector<std::string>& keys, uint32_t version = 3) {
  std::string file = "GGUF" + Raw(version) + Raw(uint64_t{0}) + Raw(uint64_t{keys.size()});
  for (const std::string& key : keys) file += key;
  return file;
}
inline std::string GgufModel(const std::string& model) {
  return GgufKey("tokenizer.ggml.model", 8, GgufString(model));
}
inline std::string GgufTokens(const std::vector<Piece>& pieces) {
  std::string texts = Raw(uint32_t{8}) + Raw(uint64_t{pieces.size()});
  for (const Piece& piece : pieces) texts += GgufString(piece.text);
  return GgufKey("tokenizer.ggml.tokens", 9, texts);
}
inline std::string GgufTypes(const std::vector<Piece>& pieces) {
  std::string types = Raw(uint32_t{5}) + Raw(uint64_t{pieces.size()});
  for (const Piece& piece : pieces) types += Raw(int32_t{piece.type});
  return GgufKey("tokenizer.ggml.token_type", 9, types);
}

// One piece of each type, and one more with spaces.
inline const std::vector<Piece> kPieces = {
    {"<unk>", kUnknown}, {"<s>", kControl}, {"<0xC3>", kByte},         {"<0xA9>", kByte},
    {"▁▁a", kNormal},    {"▁", kNormal},    {"▁<tool>", kUserDefined}, {"unused", kUnused}};

// The vocabulary of a file with these bytes, and the error of one that is refused.
inline Vocabulary Open(const std::string& bytes) {
  const TemporaryFolder folder;
  auto vocabulary = OpenTokenizer(folder.Write("any.name", bytes));
  REQUIRE_MESSAGE(vocabulary.ok(), vocabulary.status().ToString());
  return *std::move(vocabulary);
}

inline std::string ErrorOf(const std::string& bytes) {
  const TemporaryFolder folder;
  const auto vocabulary = OpenTokenizer(folder.Write("any.name", bytes));
  REQUIRE_FALSE(vocabulary.ok());
  const std::string message(vocabulary.status().message());
  CHECK(message.find(folder.path()) == 0);
  return message;
}

inline std::string Text(const Vocabulary& vocabulary, const std::vector<TokenId>& prompt,
                        const std::vector<TokenId>& outputs) {
  TextStream stream(&vocabulary, nullptr, {});
  stream.Prime(prompt, {});
  TextChunk chunk;
  for (const TokenId id : outputs) stream.Push(id, false, &chunk);
  stream.Finish(TextEnd::kFlush, &chunk);
  return chunk.text;
}

}  // namespace specd::format_files
