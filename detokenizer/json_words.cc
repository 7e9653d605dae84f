#include "detokenizer/json_words.h"

#include <fmt/format.h>

#include <cstdint>

#include "absl/strings/escaping.h"

namespace specd {

const std::string_view kReadableTokenizers =
    "specd reads tekken.json, rank files of tiktoken, SentencePiece models, GGUF files with a "
    "tokenizer of the kind llama, t5 or gpt2, RWKV's vocabulary, and a tokenizer.json with a "
    "BPE, Unigram, WordPiece or WordLevel model and a decoder of ByteLevel, ByteFallback, "
    "Replace, Strip, Fuse, Metaspace, WordPiece or BPEDecoder. Use such a file, or take the "
    "token ids from the token events and decode them in the client";

std::string Quote(std::string_view text) {
  constexpr size_t kQuotedSizeBytesMax = 60;
  const bool is_cut = text.size() > kQuotedSizeBytesMax;
  if (is_cut) {
    size_t size_bytes = kQuotedSizeBytesMax;
    while (size_bytes > 0 && (static_cast<uint8_t>(text[size_bytes]) & 0xC0) == 0x80) --size_bytes;
    text = text.substr(0, size_bytes);
  }
  return fmt::format("\"{}{}\"", absl::Utf8SafeCHexEscape({text.data(), text.size()}),
                     is_cut ? "..." : "");
}

std::string Describe(const simdjson::dom::element& value) {
  switch (value.type()) {
    case simdjson::dom::element_type::STRING:
      return Quote(std::string_view(value));
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::ARRAY:
      return "an array";
    default:
      return simdjson::to_string(value);  // a number, true, false or null
  }
}

}  // namespace specd
