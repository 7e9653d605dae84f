// Utf8Text reads and writes the characters of a text, for parsers of grammars.
//
// Pure functions, for any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace specd::grammar {

// One character of a text. A size of 0 says that no valid character begins there.
struct Utf8Char {
  uint32_t code_point = 0;
  size_t size_bytes = 0;
};

// Surrogates, overlong spellings and values past U+10FFFF are not valid. REQUIRES: not at the end.
Utf8Char DecodeUtf8Char(std::string_view text, size_t offset);

// The offset of the first byte that is not valid UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view text);

bool IsSurrogate(uint32_t code_point);

// REQUIRES: code_point is a character, which a surrogate is not.
void AppendUtf8(uint32_t code_point, std::string* text);

}  // namespace specd::grammar
