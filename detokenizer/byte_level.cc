#include "detokenizer/byte_level.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace specd {
namespace {

// A printable byte is written as the character of that number. The 68 others get the characters
// from U+0100 on, in order. All characters of the map are therefore below U+0144 and take at most
// two bytes.
constexpr uint32_t kMapEnd = 0x144;
constexpr int16_t kNotMapped = -1;

constexpr bool IsPrintable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::array<int16_t, kMapEnd> MakeByteOfChar() {
  std::array<int16_t, kMapEnd> byte_of_char{};
  for (int16_t& byte : byte_of_char) byte = kNotMapped;
  uint32_t next_char = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    byte_of_char[IsPrintable(byte) ? byte : next_char++] = static_cast<int16_t>(byte);
  }
  return byte_of_char;
}

constexpr std::array<int16_t, kMapEnd> kByteOfChar = MakeByteOfChar();

}  // namespace

std::string ByteLevelBytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t i = 0; i < token.size(); ++i) {
    uint32_t character = static_cast<uint8_t>(token[i]);
    if (character >= 0xE0) return std::string(token);  // three bytes or more: not in the map
    if (character >= 0xC0) {
      character = (character & 0x1F) << 6 | (static_cast<uint8_t>(token[++i]) & 0x3F);
    }
    if (character >= kMapEnd || kByteOfChar[character] == kNotMapped) return std::string(token);
    bytes.push_back(static_cast<char>(kByteOfChar[character]));
  }
  return bytes;
}

}  // namespace specd
