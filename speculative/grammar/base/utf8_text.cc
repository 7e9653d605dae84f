#include "speculative/grammar/base/utf8_text.h"

#include "kernels/core/check.h"
#include "speculative/grammar/base/char_set.h"

namespace specd::grammar {

bool IsSurrogate(uint32_t code_point) { return code_point >= 0xD800 && code_point <= 0xDFFF; }

Utf8Char DecodeUtf8Char(std::string_view text, size_t offset) {
  const uint8_t lead = text[offset];
  if (lead < 0x80) return {.code_point = lead, .size_bytes = 1};
  const size_t size_bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  // The smallest value that needs this size: a smaller one is an overlong spelling.
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (lead < 0xC2 || lead > 0xF4 || text.size() - offset < size_bytes) return {};
  uint32_t value = lead & (0x7Fu >> size_bytes);
  for (size_t i = 1; i < size_bytes; ++i) {
    const uint8_t byte = text[offset + i];
    if ((byte & 0xC0) != 0x80) return {};
    value = value << 6 | (byte & 0x3Fu);
  }
  if (value < kSmallest[size_bytes] || value > kCharMax || IsSurrogate(value)) return {};
  return {.code_point = value, .size_bytes = size_bytes};
}

size_t FindInvalidUtf8(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const size_t size_bytes = DecodeUtf8Char(text, offset).size_bytes;
    if (size_bytes == 0) return offset;
    offset += size_bytes;
  }
  return std::string_view::npos;
}

void AppendUtf8(uint32_t code_point, std::string* text) {
  SPECD_CHECK(code_point <= kCharMax && !IsSurrogate(code_point));
  const auto tail = [&](int shift) {
    text->push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F)));
  };
  if (code_point < 0x80) {
    text->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    text->push_back(static_cast<char>(0xC0 | code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    text->push_back(static_cast<char>(0xE0 | code_point >> 12));
    tail(6);
    tail(0);
  } else {
    text->push_back(static_cast<char>(0xF0 | code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace specd::grammar
