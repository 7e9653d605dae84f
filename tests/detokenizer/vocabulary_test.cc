#include "detokenizer/vocabulary.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace specd {

TEST_SUITE("unit") {
  TEST_CASE("vocabulary: holes and ids outside are of zero width (fastokens #30)") {
    Vocabulary::Builder builder;
    builder.Set(5, "five", {.added = true, .special = true});
    builder.Set(0, "zero", {});
    builder.Set(2, "", {.added = true});
    const Vocabulary vocabulary = std::move(builder).Build();
    CHECK(vocabulary.size() == 6);
    CHECK(vocabulary.Bytes(0) == "zero");
    CHECK(vocabulary.Bytes(5) == "five");
    CHECK(vocabulary.Contains(2));
    CHECK(vocabulary.Bytes(2).empty());
    for (const TokenId id :
         {TokenId{1}, TokenId{3}, TokenId{4}, TokenId{6}, TokenId{151927}, kNoToken,
          std::numeric_limits<TokenId>::min(), std::numeric_limits<TokenId>::max()}) {
      CAPTURE(id);
      CHECK_FALSE(vocabulary.Contains(id));
      CHECK_FALSE(vocabulary.IsSpecial(id));
      CHECK_FALSE(vocabulary.IsAdded(id));
      CHECK(vocabulary.Bytes(id).empty());
    }
  }

  TEST_CASE("vocabulary: flags belong to one token each") {
    Vocabulary::Builder builder;
    builder.Set(0, "plain", {});
    builder.Set(1, "<think>", {.added = true});
    builder.Set(2, "<eos>", {.added = true, .special = true});
    builder.Set(3, "written like <eos>", {.added = false, .special = true});
    const Vocabulary vocabulary = std::move(builder).Build();
    const bool added[] = {false, true, true, false};
    const bool special[] = {false, false, true, true};
    for (TokenId id = 0; id < 4; ++id) {
      CAPTURE(id);
      CHECK(vocabulary.IsAdded(id) == added[id]);
      CHECK(vocabulary.IsSpecial(id) == special[id]);
    }
  }

  TEST_CASE("vocabulary: FindAdded finds added tokens only, the lowest id first") {
    Vocabulary::Builder builder;
    builder.Set(0, "</think>", {});
    builder.Set(3, "</think>", {.added = true});
    builder.Set(2, "</think>", {.added = true});
    const Vocabulary vocabulary = std::move(builder).Build();
    CHECK(vocabulary.FindAdded("</think>") == 2);
    CHECK(vocabulary.FindAdded("</thin") == std::nullopt);
  }

  TEST_CASE("vocabulary: an empty one contains nothing") {
    const Vocabulary vocabulary = Vocabulary::Builder().Build();
    CHECK(vocabulary.size() == 0);
    CHECK(vocabulary.Bytes(0).empty());
  }

  TEST_CASE("vocabulary: the hash is that of docs/PROTOCOL.md, and names ids and bytes") {
    // The values are from a Python FNV-1a that gives the published 0xaf63dc4c8601ec8c for "a".
    const auto hash = [](const std::vector<std::pair<TokenId, std::string>>& tokens) {
      Vocabulary::Builder builder;
      for (const auto& [id, bytes] : tokens) builder.Set(id, bytes, {});
      return std::move(builder).Build().Hash();
    };
    CHECK(hash({{0, "Hello"}, {7, "<eos>"}}) == 0x8b746f4f2e55fd8e);
    CHECK(hash({{7, "<eos>"}, {0, "Hello"}}) == 0x8b746f4f2e55fd8e);
    CHECK(hash({{0, "a"}}) == 0xd80d0daea7dbdd7f);
    CHECK(hash({{0, "a"}, {1, ""}}) == 0x9db3e0180f7cb8ef);
    // An id that moves changes the hash, and so do bytes that move to the next id.
    CHECK(hash({{0, "Hello"}, {6, "<eos>"}}) != hash({{0, "Hello"}, {7, "<eos>"}}));
    CHECK(hash({{0, "ab"}, {1, "c"}}) != hash({{0, "a"}, {1, "bc"}}));
    Vocabulary::Builder flags;
    flags.Set(0, "a", {.added = true, .special = true});
    CHECK(std::move(flags).Build().Hash() == 0xd80d0daea7dbdd7f);
  }

  TEST_CASE("vocabulary: a token of the largest size and the highest id keep their bytes") {
    const std::string longest(Vocabulary::kTokenSizeBytesMax, 'x');
    Vocabulary::Builder builder;
    builder.Set(kVocabSizeMax - 1, longest, {});
    builder.Set(0, "a", {});
    const Vocabulary vocabulary = std::move(builder).Build();
    CHECK(vocabulary.size() == kVocabSizeMax);
    CHECK(vocabulary.Bytes(kVocabSizeMax - 1) == longest);
    CHECK(vocabulary.Bytes(0) == "a");
  }
}

}  // namespace specd
