// DecodeUtf8 reads one character of UTF-8 at a time, for the toy engine's encoder and the toy
// client's columns.
//
// The toys use only specd's installed interfaces, so this small decoder is their own. The daemon's
// decoder is in detokenizer/. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace specd::toy {

struct Utf8Char {
  uint32_t code_point;
  size_t size_bytes;  // 1 if the bytes are not valid: the caller continues with the next byte
  bool valid;
};

// REQUIRES: offset < text.size().
inline Utf8Char DecodeUtf8(std::string_view text, size_t offset) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[offset + i]); };
  const uint8_t lead = byte_at(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  const Utf8Char invalid = {lead, 1, false};
  if (lead < 0xC2 || lead > 0xF4 || size > text.size() - offset) return invalid;
  uint32_t code_point = lead & (0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte_at(i) & 0xC0) != 0x80) return invalid;
    code_point = code_point << 6 | (byte_at(i) & 0x3Fu);
  }
  // Overlong forms, surrogates and numbers past the last plane are not UTF-8.
  const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (code_point < smallest[size] || surrogate || code_point > 0x10FFFF) return invalid;
  return {code_point, size, true};
}

// The longest prefix of text that has at most limit_bytes and cuts no character in two.
inline std::string_view Utf8Prefix(std::string_view text, size_t limit_bytes) {
  if (text.size() <= limit_bytes) return text;
  size_t end = 0;
  while (end < text.size()) {
    const size_t next = end + DecodeUtf8(text, end).size_bytes;
    if (next > limit_bytes) break;
    end = next;
  }
  return text.substr(0, end);
}

}  // namespace specd::toy
