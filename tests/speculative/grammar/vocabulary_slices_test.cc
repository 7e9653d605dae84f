#include "speculative/grammar/masks/vocabulary_slices.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

// The definition again, by other means. The number of characters, or -1 if the bytes are not
// complete UTF-8.
int NumCharacters(const std::string& bytes) {
  int count = 0;
  for (size_t i = 0; i < bytes.size(); ++count) {
    const auto lead = static_cast<uint8_t>(bytes[i++]);
    const size_t num_tails = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if ((lead >= 0x80 && lead < 0xC0) || lead > 0xF7) return -1;
    uint32_t value = num_tails == 0 ? lead : lead & (0x3Fu >> num_tails);
    for (size_t tail = 0; tail < num_tails; ++tail, ++i) {
      if (i == bytes.size() || (bytes[i] & 0xC0) != 0x80) return -1;
      value = value << 6 | (static_cast<uint8_t>(bytes[i]) & 0x3F);
    }
    constexpr std::array<uint32_t, 4> kMin = {0, 0x80, 0x800, 0x10000};
    if (value < kMin[num_tails] || value > 0x10FFFF) return -1;
    if (value >= 0xD800 && value <= 0xDFFF) return -1;
  }
  return count;
}

std::string ExpectedName(const std::string& bytes) {
  const int count = NumCharacters(bytes);
  if (count < 0) return "the rest";
  const auto all = [&](const char* more, bool letters) {
    return std::all_of(bytes.begin(), bytes.end(), [&](char byte) {
      const bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
      return (letters && is_letter) || std::string_view(more).find(byte) != std::string_view::npos;
    });
  };
  const bool has_control = std::any_of(bytes.begin(), bytes.end(), [](char byte) {
    return (byte >= 0 && byte < 0x20) || byte == '"' || byte == '\\';
  });
  const bool is_ascii =
      std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte >= 0 && byte != 0x7F; });
  const bool has_space_first =
      bytes.size() > 1 && bytes[0] == ' ' && ExpectedName(bytes.substr(1)).starts_with("letters ");
  std::string family;
  if (has_control) return "the rest";
  if (all("", true)) {
    family = "letters";
  } else if (has_space_first) {
    family = "space and letters";
  } else if (all("0123456789_-", true)) {
    family = "letters, digits, _ and -";
  } else {
    family = is_ascii ? "ASCII of a string" : "characters of a string";
  }
  if (count <= 8) return family + " 1..8";
  if (count <= 16) return family + " 9..16";
  return family + (count <= 32 ? " 17..32" : " 33..");
}

std::string RandomToken(std::mt19937* random) {
  static const std::array<std::vector<std::string>, 5> alphabets = {{
      {"a", "z", "A", "Z"},
      {"a", "Z", "0", "9", "_", "-"},
      {"a", " ", "~", "!", "#", "[", "]", "@", "`", "{", "/", ":", "."},
      {"a", " ", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBF",
       "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"},
      {"a", "\"", "\\", "\n", "\x1F", "\x80", "\xC3", "\xE4\xBD", "\xED\xA0\x80", "\xFF"},
  }};
  constexpr std::array<size_t, 10> kCounts = {1, 2, 7, 8, 9, 15, 16, 17, 32, 33};
  const std::vector<std::string>& alphabet = alphabets[(*random)() % alphabets.size()];
  std::string token((*random)() % 3 == 0 ? " " : "");
  for (size_t i = kCounts[(*random)() % kCounts.size()]; i > 0; --i) {
    token += alphabet[(*random)() % alphabet.size()];
  }
  return token;
}

bool Has(const VocabularySlice& slice, TokenId id) {
  return (slice.mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

TEST_SUITE("unit") {
  TEST_CASE("every token is in one slice, the first whose language has it") {
    std::mt19937 random(6);
    const int32_t num_tokens = GridSize({.full = 4000, .sanitized = 600});
    const int32_t vocab_size = num_tokens + 37;
    Vocabulary::Builder builder;
    for (TokenId id = 0; id < num_tokens; ++id) {
      builder.Set(id, RandomToken(&random), {.added = id % 50 == 0, .special = id % 50 == 0});
    }
    const Vocabulary vocabulary = std::move(builder).Build();
    const TokenTrie trie = TokenTrie::Build(vocabulary, vocab_size);
    const std::vector<VocabularySlice> slices = MakeVocabularySlices(trie);
    CHECK(slices.size() == 5 * 4 + 1);

    size_t num_in_slices = 0;
    for (const VocabularySlice& slice : slices) {
      CHECK(slice.num_tokens() > 0);
      CHECK(slice.mask.size() == (static_cast<size_t>(vocab_size) + 31) / 32);
      CHECK(slice.tokens.vocab_size() == vocab_size);
      CHECK(slice.language.has_value() == (&slice != &slices.back()));
      num_in_slices += slice.num_tokens();
      size_t num_bits = 0;
      for (TokenId id = 0; id < static_cast<TokenId>(slice.mask.size() * 32); ++id) {
        const std::string bytes(vocabulary.Bytes(id));
        const bool is_token = id < num_tokens && id % 50 != 0;
        REQUIRE_MESSAGE(Has(slice, id) == (is_token && ExpectedName(bytes) == slice.name), "id ",
                        id, " in ", slice.name);
        if (!Has(slice, id)) continue;
        ++num_bits;
        if (slice.language.has_value()) REQUIRE(slice.language->Accepts(bytes));
      }
      CHECK(num_bits == slice.num_tokens());
      for (const TokenId id : slice.tokens.tokens()) CHECK(Has(slice, id));
    }
    CHECK(num_in_slices == trie.tokens().size());
  }

  TEST_CASE("empty slices are left out, and the rest is always there") {
    Vocabulary::Builder builder;
    builder.Set(0, "word", {});
    builder.Set(1, " ", {});
    const TokenTrie trie = TokenTrie::Build(std::move(builder).Build(), 2);
    const std::vector<VocabularySlice> slices = MakeVocabularySlices(trie);
    REQUIRE(slices.size() == 3);
    CHECK(slices[0].name == "letters 1..8");
    CHECK(slices[0].mask == std::vector<uint32_t>{1});
    CHECK(slices[1].name == "ASCII of a string 1..8");
    CHECK(slices[1].mask == std::vector<uint32_t>{2});
    CHECK(slices[2].num_tokens() == 0);
    CHECK(slices[2].mask == std::vector<uint32_t>{0});
  }
}

}  // namespace
}  // namespace specd::grammar
