#include "speculative/grammar/masks/vocabulary_slices.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "speculative/grammar/rules/grammar_rules.h"
#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

// The definition again, by other means. The number of characters, with a last one that more bytes
// would complete, or -1 if the bytes begin no UTF-8.
int NumCharacters(const std::string& bytes) {
  int count = 0;
  for (size_t i = 0; i < bytes.size(); ++count) {
    const auto lead = static_cast<uint8_t>(bytes[i++]);
    const size_t num_tails = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if ((lead >= 0x80 && lead < 0xC0) || lead > 0xF7) return -1;
    // The characters that the bytes of this one may still be.
    uint32_t first = num_tails == 0 ? lead : lead & (0x3Fu >> num_tails);
    uint32_t last = first;
    for (size_t tail = 0; tail < num_tails; ++tail) {
      const bool is_there = i < bytes.size();
      if (is_there && (bytes[i] & 0xC0) != 0x80) return -1;
      const uint32_t value = is_there ? static_cast<uint8_t>(bytes[i]) & 0x3F : 0;
      first = first << 6 | value;
      last = last << 6 | (is_there ? value : 0x3F);
      if (is_there) ++i;
    }
    constexpr std::array<uint32_t, 4> kMin = {0, 0x80, 0x800, 0x10000};
    first = std::max(first, kMin[num_tails]);
    last = std::min(last, uint32_t{0x10FFFF});
    if (first > last || (first >= 0xD800 && last <= 0xDFFF)) return -1;
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
  const auto has_any = [&](std::string_view more) {
    return std::any_of(bytes.begin(), bytes.end(), [&](char byte) {
      return (byte >= 0 && byte < 0x20) || more.find(byte) != std::string_view::npos;
    });
  };
  const bool is_lower =
      std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte >= 'a' && byte <= 'z'; });
  const bool is_digits =
      std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte >= '0' && byte <= '9'; });
  const bool is_ascii =
      std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte >= 0 && byte != 0x7F; });
  const bool has_space_first =
      bytes[0] == ' ' && std::all_of(bytes.begin() + 1, bytes.end(), [](char byte) {
        return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
      });
  std::string family;
  if (has_any("")) return "the rest";
  if (is_lower) {
    family = "lower-case letters";
  } else if (all("", true)) {
    family = "letters";
  } else if (has_space_first) {
    family = "space and letters";
  } else if (is_digits) {
    family = "digits";
  } else if (has_any("\"\\")) {
    family = "characters of a line";
  } else if (all("0123456789_-", true)) {
    family = "letters, digits, _ and -";
  } else {
    family = is_ascii ? "ASCII of a string" : "characters of a string";
  }
  if (count <= 8) return family + " 1..8";
  return family + (count <= 16 ? " 9..16" : " 17..");
}

std::string RandomToken(std::mt19937* random) {
  static const std::array<std::vector<std::string>, 8> alphabets = {{
      {"a", "z", "A", "Z"},
      {"a", "z"},
      {"0", "9"},
      {"a", " ", "\"", "\\", "\xC2\x80"},
      {"a", "Z", "0", "9", "_", "-"},
      {"a", " ", "~", "!", "#", "[", "]", "@", "`", "{", "/", ":", "."},
      {"a", " ", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBF",
       "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"},
      {"a", "\"", "\\", "\n", "\x1F", "\x80", "\xC3", "\xE4\xBD", "\xED\xA0\x80", "\xFF"},
  }};
  constexpr std::array<size_t, 10> kCounts = {1, 2, 3, 7, 8, 9, 15, 16, 17, 33};
  const std::vector<std::string>& alphabet = alphabets[(*random)() % alphabets.size()];
  std::string token((*random)() % 3 == 0 ? " " : "");
  for (size_t i = kCounts[(*random)() % kCounts.size()]; i > 0; --i) {
    token += alphabet[(*random)() % alphabet.size()];
  }
  return token;
}

// The families that a family contains, by the definition of their characters.
bool Contains(const std::string& family, const std::string& other) {
  const std::array<std::string, 8> order = {"digits",
                                            "lower-case letters",
                                            "letters",
                                            "letters, digits, _ and -",
                                            "space and letters",
                                            "ASCII of a string",
                                            "characters of a string",
                                            "characters of a line"};
  const auto at = [&](const std::string& name) {
    return std::find(order.begin(), order.end(), name) - order.begin();
  };
  if (family == other) return true;
  if (family == "space and letters" || family == "digits") return false;
  if (other == "space and letters") return at(family) > at(other);
  if (other == "digits") return at(family) >= at("letters, digits, _ and -");
  return at(other) < at(family);
}

TEST_SUITE("unit") {
  TEST_CASE("every token is in one slice, that of the first family whose texts it may begin") {
    std::mt19937 random(6);
    const int32_t num_tokens = GridSize({.full = 4000, .sanitized = 600});
    const int32_t vocab_size = num_tokens + 37;
    Vocabulary::Builder builder;
    for (TokenId id = 0; id < num_tokens; ++id) {
      builder.Set(id, RandomToken(&random), {.added = id % 50 == 0, .special = id % 50 == 0});
    }
    const Vocabulary vocabulary = std::move(builder).Build();
    const TokenTrie trie = TokenTrie::Build(vocabulary, vocab_size);
    const VocabularySlices made = MakeVocabularySlices(trie);
    REQUIRE(made.families.size() == 8);
    CHECK(made.slices.size() == 8 * 3 + 1);

    std::map<std::string, std::set<TokenId>> expected;  // by the slice's name
    size_t num_tokens_of_all = 0;
    for (TokenId id = 0; id < num_tokens; ++id) {
      if (id % 50 == 0) continue;
      expected[ExpectedName(std::string(vocabulary.Bytes(id)))].insert(id);
      ++num_tokens_of_all;
    }
    CHECK(num_tokens_of_all == trie.tokens().size());
    CHECK(expected.size() == made.slices.size());
    for (const VocabularySlice& slice : made.slices) {
      CAPTURE(slice.name);
      CHECK((slice.family == VocabularySlice::kNoFamily) == (&slice == &made.slices.back()));
      CHECK(slice.tokens.vocab_size() == vocab_size);
      const auto tokens = slice.tokens.tokens();
      CHECK(std::set<TokenId>(tokens.begin(), tokens.end()) == expected[slice.name]);
    }

    for (const TokenFamily& family : made.families) {
      for (uint32_t count = 0; count <= 18; ++count) {
        CAPTURE(family.name);
        CAPTURE(count);
        const uint32_t count_max = count == 18 ? kUnbounded : std::min(count, 17u);
        const std::vector<uint32_t>& mask = family.MaskOf(count_max);
        REQUIRE(mask.size() == (static_cast<size_t>(vocab_size) + 31) / 32);
        for (TokenId id = 0; id < static_cast<TokenId>(mask.size() * 32); ++id) {
          bool is_in = id < num_tokens && id % 50 != 0;
          if (is_in) {
            const std::string bytes(vocabulary.Bytes(id));
            const std::string name = ExpectedName(bytes);
            is_in = name != "the rest" && Contains(family.name, name.substr(0, name.rfind(' '))) &&
                    (count_max >= 17 || NumCharacters(bytes) <= static_cast<int>(count_max));
          }
          REQUIRE_MESSAGE(((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) == is_in,
                          "id ", id);
        }
      }
    }
  }

  TEST_CASE("what is known of all that comes below a node is true") {
    std::mt19937 random(8);
    Vocabulary::Builder builder;
    const int32_t num_tokens = 20000;
    for (TokenId id = 0; id < num_tokens; ++id) builder.Set(id, RandomToken(&random), {});
    const Vocabulary vocabulary = std::move(builder).Build();
    const VocabularySlices made = MakeVocabularySlices(TokenTrie::Build(vocabulary, num_tokens));
    size_t num_known = 0;
    for (const VocabularySlice& slice : made.slices) {
      REQUIRE(slice.below.size() == slice.tokens.branches().size());
      for (uint32_t node = 0; node < slice.tokens.nodes().size(); ++node) {
        const TokenTrie::Node at = slice.tokens.nodes()[node];
        if (!at.is_wide) continue;
        const VocabularySlice::Below& below = slice.below[slice.tokens.BranchOf(node)];
        if (below.family == VocabularySlice::kNoFamily) continue;
        ++num_known;
        int characters_max = 0;
        for (const TokenId id : slice.tokens.TokensUnder(node)) {
          const std::string rest(vocabulary.Bytes(id).substr(at.depth + size_t{1}));
          if (rest.empty()) continue;
          const std::string name = ExpectedName(rest);
          REQUIRE_MESSAGE(name != "the rest", rest);
          REQUIRE_MESSAGE(
              Contains(made.families[below.family].name, name.substr(0, name.rfind(' '))), rest);
          characters_max = std::max(characters_max, NumCharacters(rest));
        }
        CHECK(below.characters_max == static_cast<uint32_t>(characters_max));
      }
    }
    CHECK(num_known > 20);
  }

  TEST_CASE("empty slices are left out, and the rest is always there") {
    Vocabulary::Builder builder;
    builder.Set(0, "word", {});
    builder.Set(1, "!", {});
    const TokenTrie trie = TokenTrie::Build(std::move(builder).Build(), 2);
    const VocabularySlices made = MakeVocabularySlices(trie);
    REQUIRE(made.slices.size() == 3);
    CHECK(made.slices[0].name == "lower-case letters 1..8");
    CHECK(made.slices[1].name == "ASCII of a string 1..8");
    CHECK(made.slices[2].num_tokens() == 0);
    CHECK(made.families[3].contained.empty());
    CHECK(made.families[5].MaskOf(3) == std::vector<uint32_t>{2});
    CHECK(made.families[5].MaskOf(4) == std::vector<uint32_t>{3});
  }
}

}  // namespace
}  // namespace specd::grammar
