#include "detokenizer/byte_level.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/detokenizer/reference_text.h"

namespace specd {
namespace {

// bytes_to_unicode() as published with GPT-2: the printable bytes in their order, then the others
// counted up from U+0100.
std::vector<uint32_t> PublishedCharOfByte() {
  std::vector<uint32_t> char_of_byte(256, 0);
  for (uint32_t byte = '!'; byte <= '~'; ++byte) char_of_byte[byte] = byte;
  for (uint32_t byte = 0xA1; byte <= 0xAC; ++byte) char_of_byte[byte] = byte;
  for (uint32_t byte = 0xAE; byte <= 0xFF; ++byte) char_of_byte[byte] = byte;
  uint32_t num_others = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (char_of_byte[byte] == 0) char_of_byte[byte] = 256 + num_others++;
  }
  return char_of_byte;
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("byte level: all 256 bytes of the published GPT-2 map") {
    const std::vector<uint32_t> char_of_byte = PublishedCharOfByte();
    CHECK(char_of_byte[0x20] == 0x120);  // "Ġ" is a blank
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const std::string bytes(1, static_cast<char>(byte));
      CHECK(ByteLevelBytes(reference::EncodeUtf8(char_of_byte[byte])) == bytes);
    }
  }

  TEST_CASE("byte level: code points outside the map are their own UTF-8") {
    const std::vector<uint32_t> char_of_byte = PublishedCharOfByte();
    size_t num_wrong = 0;
    for (uint32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
      const bool is_mapped =
          std::find(char_of_byte.begin(), char_of_byte.end(), code_point) != char_of_byte.end();
      if (is_mapped || (code_point >= 0xD800 && code_point <= 0xDFFF)) continue;
      const std::string character = reference::EncodeUtf8(code_point);
      if (ByteLevelBytes(character) != character) ++num_wrong;
    }
    CHECK(num_wrong == 0);
  }

  TEST_CASE(
      "byte level: one unmapped character makes the whole token literal (HF ByteLevel test)") {
    CHECK(ByteLevelBytes("Ġthere") == " there");
    CHECK(ByteLevelBytes("[PA D]") == "[PA D]");
    CHECK(ByteLevelBytes("ĠaĠ b") == "ĠaĠ b");
    CHECK(ByteLevelBytes("Ġ<｜begin▁of▁sentence｜>") == "Ġ<｜begin▁of▁sentence｜>");
    CHECK(ByteLevelBytes("Ġ😀") == "Ġ😀");
    CHECK(ByteLevelBytes("").empty());
  }
}

}  // namespace specd
