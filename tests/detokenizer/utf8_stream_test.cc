#include "detokenizer/utf8_stream.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/detokenizer/reference_text.h"

namespace specd {
namespace {

using namespace std::string_literals;

std::string Replacements(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += kReplacementCharacter;
  return text;
}

std::string DecodeAtOnce(std::string_view bytes) {
  Utf8Stream stream;
  std::string text;
  stream.Push(bytes, &text);
  stream.Finish(&text);
  return text;
}

// Every prefix must have released exactly what later bytes cannot change: nothing late, nothing
// early.
bool ReleasesEveryPrefixExactly(std::string_view bytes) {
  Utf8Stream stream;
  std::string text;
  for (size_t size = 1; size <= bytes.size(); ++size) {
    stream.Push(bytes.substr(size - 1, 1), &text);
    const reference::Decoded expected = reference::DecodeUtf8(bytes.substr(0, size));
    if (text != expected.text || stream.HasPending() != expected.pending) return false;
  }
  const reference::Decoded whole = reference::DecodeUtf8(bytes);
  const std::string finished = whole.text + Replacements(whole.pending ? 1 : 0);
  stream.Finish(&text);
  return text == finished && DecodeAtOnce(bytes) == finished && !stream.HasPending();
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("utf8: every string of up to 4 boundary bytes equals Unicode Table 3-7") {
    const std::string alphabet =
        "\x00\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3"
        "\xF4\xF5\xFF"s;
    REQUIRE(alphabet.size() == 25);
    size_t num_strings = 0;
    size_t num_wrong = 0;
    std::vector<std::string> shorter = {""};
    for (int length = 1; length <= 4; ++length) {
      std::vector<std::string> longer;
      for (const std::string& prefix : shorter) {
        for (const char byte : alphabet) {
          longer.push_back(prefix + byte);
          ++num_strings;
          if (!ReleasesEveryPrefixExactly(longer.back())) ++num_wrong;
        }
      }
      shorter = std::move(longer);
    }
    CHECK(num_strings == 25 + 625 + 15625 + 390625);
    CHECK(num_wrong == 0);
  }

  TEST_CASE("utf8: every code point split at every offset comes out whole with its last byte") {
    size_t num_wrong = 0;
    for (uint32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
      if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
      const std::string bytes = reference::EncodeUtf8(code_point);
      for (size_t split = 1; split <= bytes.size(); ++split) {
        Utf8Stream stream;
        std::string text;
        stream.Push(std::string_view(bytes).substr(0, split), &text);
        if (split < bytes.size() && !text.empty()) ++num_wrong;
        stream.Push(std::string_view(bytes).substr(split), &text);
        if (text != bytes || stream.HasPending()) ++num_wrong;
      }
    }
    CHECK(num_wrong == 0);
  }

  TEST_CASE("utf8: replacement as in the Unicode Standard Tables 3-8 to 3-11") {
    CHECK(DecodeAtOnce("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41") == Replacements(8) + "A");
    CHECK(DecodeAtOnce("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41") == Replacements(8) + "A");
    CHECK(DecodeAtOnce("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42") ==
          Replacements(5) + "A" + Replacements(2) + "B");
    CHECK(DecodeAtOnce("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41") == Replacements(4) + "A");
  }

  TEST_CASE("utf8: random bytes in random pieces equal the whole") {
    constexpr uint64_t kSeed = 20240817;
    // Bytes are drawn so that well-formed, truncated and ill-formed sequences all abound.
    const std::string likely = "aZ\x80\xA0\xBF\xC3\xE2\xE0\xED\xF0\xF4\x90\xFF";
    size_t num_wrong = 0;
    for (uint64_t round = 0; round < 60000; ++round) {
      std::mt19937_64 random(kSeed + round);
      std::string bytes;
      for (size_t size = random() % 24; size > 0; --size) {
        bytes += random() % 2 == 0 ? static_cast<char>(random()) : likely[random() % likely.size()];
      }
      Utf8Stream stream;
      std::string text;
      for (size_t at = 0; at < bytes.size();) {
        const size_t size = 1 + random() % 5;
        stream.Push(std::string_view(bytes).substr(at, size), &text);
        at += size;
      }
      stream.Finish(&text);
      const reference::Decoded expected = reference::DecodeUtf8(bytes);
      if (text != expected.text + Replacements(expected.pending ? 1 : 0)) {
        INFO("seed ", kSeed + round);
        CHECK(text == expected.text);
        ++num_wrong;
      }
    }
    CHECK(num_wrong == 0);
  }

  TEST_CASE("utf8: Discard forgets the pending bytes and the stream goes on") {
    Utf8Stream stream;
    std::string text;
    stream.Push("\xE4\xBD", &text);
    REQUIRE(stream.HasPending());
    stream.Discard();
    stream.Finish(&text);
    CHECK(text.empty());
    stream.Push("\xE4\xBD\xA0", &text);
    CHECK(text == "你");
  }
}

}  // namespace specd
