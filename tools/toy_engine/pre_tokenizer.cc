#include "tools/toy_engine/pre_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "tools/toy_engine/utf8.h"

namespace specd::toy {
namespace {

enum class CharClass { kSpace, kLetter, kNumber, kSign };

struct ClassRange {
  uint32_t first;
  uint32_t last;
  CharClass char_class;
};

// The code points from 0x80 up that are not letters, in ascending order (Unicode 14,
// DerivedGeneralCategory.txt and PropList.txt), for Latin, Greek, Cyrillic, punctuation, symbols,
// arrows, mathematics, CJK and emoji. Marks count as signs, as in the expression.
constexpr ClassRange kNonLetters[] = {
    {0x80, 0x84, CharClass::kSign},       {0x85, 0x85, CharClass::kSpace},
    {0x86, 0x9F, CharClass::kSign},       {0xA0, 0xA0, CharClass::kSpace},
    {0xA1, 0xA9, CharClass::kSign},       {0xAB, 0xB1, CharClass::kSign},
    {0xB2, 0xB3, CharClass::kNumber},     {0xB4, 0xB4, CharClass::kSign},
    {0xB6, 0xB8, CharClass::kSign},       {0xB9, 0xB9, CharClass::kNumber},
    {0xBB, 0xBB, CharClass::kSign},       {0xBC, 0xBE, CharClass::kNumber},
    {0xBF, 0xBF, CharClass::kSign},       {0xD7, 0xD7, CharClass::kSign},
    {0xF7, 0xF7, CharClass::kSign},       {0x2C2, 0x2C5, CharClass::kSign},
    {0x2D2, 0x2DF, CharClass::kSign},     {0x2E5, 0x2EB, CharClass::kSign},
    {0x2ED, 0x2ED, CharClass::kSign},     {0x2EF, 0x2FF, CharClass::kSign},
    {0x300, 0x36F, CharClass::kSign},     {0x375, 0x375, CharClass::kSign},
    {0x37E, 0x37E, CharClass::kSign},     {0x384, 0x385, CharClass::kSign},
    {0x387, 0x387, CharClass::kSign},     {0x3F6, 0x3F6, CharClass::kSign},
    {0x482, 0x489, CharClass::kSign},     {0x1680, 0x1680, CharClass::kSpace},
    {0x2000, 0x200A, CharClass::kSpace},  {0x200B, 0x2027, CharClass::kSign},
    {0x2028, 0x2029, CharClass::kSpace},  {0x202A, 0x202E, CharClass::kSign},
    {0x202F, 0x202F, CharClass::kSpace},  {0x2030, 0x205E, CharClass::kSign},
    {0x205F, 0x205F, CharClass::kSpace},  {0x2060, 0x206F, CharClass::kSign},
    {0x2070, 0x2070, CharClass::kNumber}, {0x2074, 0x2079, CharClass::kNumber},
    {0x207A, 0x207E, CharClass::kSign},   {0x2080, 0x2089, CharClass::kNumber},
    {0x208A, 0x208E, CharClass::kSign},   {0x20A0, 0x20F0, CharClass::kSign},
    {0x2100, 0x2101, CharClass::kSign},   {0x2103, 0x2106, CharClass::kSign},
    {0x2108, 0x2109, CharClass::kSign},   {0x2114, 0x2114, CharClass::kSign},
    {0x2116, 0x2118, CharClass::kSign},   {0x211E, 0x2123, CharClass::kSign},
    {0x2125, 0x2125, CharClass::kSign},   {0x2127, 0x2127, CharClass::kSign},
    {0x2129, 0x2129, CharClass::kSign},   {0x212E, 0x212E, CharClass::kSign},
    {0x213A, 0x213B, CharClass::kSign},   {0x2140, 0x2144, CharClass::kSign},
    {0x214A, 0x214D, CharClass::kSign},   {0x214F, 0x214F, CharClass::kSign},
    {0x2150, 0x2182, CharClass::kNumber}, {0x2185, 0x2189, CharClass::kNumber},
    {0x218A, 0x245F, CharClass::kSign},   {0x2460, 0x249B, CharClass::kNumber},
    {0x249C, 0x24E9, CharClass::kSign},   {0x24EA, 0x24FF, CharClass::kNumber},
    {0x2500, 0x2775, CharClass::kSign},   {0x2776, 0x2793, CharClass::kNumber},
    {0x2794, 0x2BFF, CharClass::kSign},   {0x3000, 0x3000, CharClass::kSpace},
    {0x3001, 0x3004, CharClass::kSign},   {0x3007, 0x3007, CharClass::kNumber},
    {0x3008, 0x3020, CharClass::kSign},   {0x3021, 0x3029, CharClass::kNumber},
    {0x302A, 0x3030, CharClass::kSign},   {0x3036, 0x3037, CharClass::kSign},
    {0x3038, 0x303A, CharClass::kNumber}, {0x303D, 0x303F, CharClass::kSign},
    {0x3099, 0x309C, CharClass::kSign},   {0x30A0, 0x30A0, CharClass::kSign},
    {0x30FB, 0x30FB, CharClass::kSign},   {0xFE00, 0xFE0F, CharClass::kSign},
    {0xFF01, 0xFF0F, CharClass::kSign},   {0xFF10, 0xFF19, CharClass::kNumber},
    {0xFF1A, 0xFF20, CharClass::kSign},   {0xFF3B, 0xFF40, CharClass::kSign},
    {0xFF5B, 0xFF65, CharClass::kSign},   {0xFFFC, 0xFFFF, CharClass::kSign},
    {0x1F000, 0x1F0FF, CharClass::kSign}, {0x1F100, 0x1F10C, CharClass::kNumber},
    {0x1F10D, 0x1FAFF, CharClass::kSign},
};

CharClass ClassOfAscii(char c) {
  if (c == ' ' || (c >= '\t' && c <= '\r')) return CharClass::kSpace;
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharClass::kLetter;
  if (c >= '0' && c <= '9') return CharClass::kNumber;
  return CharClass::kSign;
}

CharClass ClassOf(uint32_t code_point) {
  if (code_point < 0x80) return ClassOfAscii(static_cast<char>(code_point));
  const ClassRange* range =
      std::lower_bound(std::begin(kNonLetters), std::end(kNonLetters), code_point,
                       [](const ClassRange& r, uint32_t value) { return r.last < value; });
  const bool found = range != std::end(kNonLetters) && range->first <= code_point;
  return found ? range->char_class : CharClass::kLetter;
}

struct Char {
  CharClass char_class;
  size_t size_bytes;
};

Char CharAt(std::string_view text, size_t offset) {
  const Utf8Char decoded = DecodeUtf8(text, offset);
  const CharClass char_class = decoded.valid ? ClassOf(decoded.code_point) : CharClass::kSign;
  return {char_class, decoded.size_bytes};
}

size_t ContractionSize(std::string_view text) {
  for (std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.substr(0, ending.size()) == ending) return ending.size();
  }
  return 0;
}

// Bytes of the run of one class that begins at offset.
size_t RunSize(std::string_view text, size_t offset, CharClass char_class) {
  size_t end = offset;
  while (end < text.size()) {
    const Char next = CharAt(text, end);
    if (next.char_class != char_class) break;
    end += next.size_bytes;
  }
  return end - offset;
}

// White space at the end of the text is one piece. Elsewhere a run's last character stays for the
// piece that follows, unless it is the only one.
size_t SpaceSize(std::string_view text, size_t offset) {
  size_t end = offset;
  size_t last_size = 0;
  while (end < text.size()) {
    const Char next = CharAt(text, end);
    if (next.char_class != CharClass::kSpace) break;
    last_size = next.size_bytes;
    end += last_size;
  }
  const size_t run = end - offset;
  return end == text.size() || run == last_size ? run : run - last_size;
}

size_t PieceSize(std::string_view text, size_t offset) {
  if (text[offset] == '\'') {
    const size_t size = ContractionSize(text.substr(offset));
    if (size > 0) return size;
  }
  const size_t space = text[offset] == ' ' && offset + 1 < text.size() ? 1 : 0;
  const CharClass char_class = CharAt(text, offset + space).char_class;
  if (char_class == CharClass::kSpace) return SpaceSize(text, offset);
  return space + RunSize(text, offset + space, char_class);
}

}  // namespace

std::vector<std::string_view> PreTokenize(std::string_view text) {
  std::vector<std::string_view> pieces;
  size_t offset = 0;
  while (offset < text.size()) {
    const size_t size = PieceSize(text, offset);
    pieces.push_back(text.substr(offset, size));
    offset += size;
  }
  return pieces;
}

}  // namespace specd::toy
