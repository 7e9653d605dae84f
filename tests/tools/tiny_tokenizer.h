// TinyTokenizer builds a tokenizer.json for tests that is small enough to encode by hand.
//
// It has the 256 bytes, then the merges that the test names. Byte b has id b; merge number i makes
// id 256 + i; the special token <|endoftext|> comes last. No state.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace specd::toy {

// GPT-2's printable name of a byte, as JSON, written from its published byte table.
inline std::string ByteName(uint32_t byte) {
  const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  if (prints && (byte == '"' || byte == '\\')) return fmt::format("\\{}", static_cast<char>(byte));
  if (prints && byte < 128) return std::string(1, static_cast<char>(byte));
  if (prints) return fmt::format("\\u{:04x}", byte);
  // The bytes 0..32, 127..160 and 173 are numbered from 256 in ascending order.
  const uint32_t number = byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67;
  return fmt::format("\\u{:04x}", 256 + number);
}

struct TinyTokenizer {
  std::vector<std::pair<std::string, std::string>> merges = {};
  std::string pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": false})";
  std::string normalizer = "null";
  std::string model_options = "";  // more members of the model, each followed by a comma
  bool merges_as_strings = false;
  int left_out_byte = -1;

  std::string Json() const {
    std::string vocab, ranks;
    for (int byte = 0; byte < 256; ++byte) {
      if (byte == left_out_byte) continue;
      vocab += fmt::format("\"{}\": {}, ", ByteName(static_cast<uint32_t>(byte)), byte);
    }
    int id = 256;
    for (const auto& [left, right] : merges) {
      vocab += fmt::format("\"{}{}\": {}, ", left, right, id++);
      ranks += ranks.empty() ? "" : ", ";
      ranks += merges_as_strings ? fmt::format("\"{} {}\"", left, right)
                                 : fmt::format("[\"{}\", \"{}\"]", left, right);
    }
    return fmt::format(
        R"({{"added_tokens": [{{"id": {0}, "content": "<|endoftext|>", "special": true}}],
            "normalizer": {1}, "pre_tokenizer": {2},
            "model": {{"type": "BPE", {3} "vocab": {{ {4} "<|endoftext|>": {0} }},
                       "merges": [{5}]}} }})",
        id, normalizer, pre_tokenizer, model_options, vocab, ranks);
  }
};

}  // namespace specd::toy
