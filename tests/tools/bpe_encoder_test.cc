#include "tools/toy_engine/bpe_encoder.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/tools/tiny_tokenizer.h"

namespace specd::toy {
namespace {

using Ids = std::vector<int32_t>;

BpeEncoder MakeEncoder(const TinyTokenizer& tokenizer) {
  absl::StatusOr<BpeVocabulary> vocabulary = ParseVocabulary(tokenizer.Json());
  REQUIRE_MESSAGE(vocabulary.ok(), std::string(vocabulary.status().message()));
  return BpeEncoder(*std::move(vocabulary));
}

BpeEncoder LoadShipped() {
  absl::StatusOr<BpeEncoder> encoder =
      BpeEncoder::Load(SPECD_SOURCE_DIR "/tools/toy_engine/tokenizer.json");
  REQUIRE_MESSAGE(encoder.ok(), std::string(encoder.status().message()));
  return *std::move(encoder);
}

TEST_SUITE("unit") {
  TEST_CASE("the pair of lowest rank is joined first, not the leftmost and not the longest") {
    const BpeEncoder encoder = MakeEncoder({.merges = {{"b", "c"}, {"a", "b"}, {"ab", "c"}}});
    // bc is joined before ab can be, and no merge joins a with bc.
    CHECK(encoder.Encode("abc") == Ids{'a', 256});
    CHECK(encoder.Encode("ab") == Ids{257});
  }

  TEST_CASE("of equal pairs the leftmost is joined first") {
    const BpeEncoder encoder = MakeEncoder({.merges = {{"a", "a"}, {"aa", "a"}}});
    CHECK(encoder.Encode("aaa") == Ids{257});
    CHECK(encoder.Encode("aaaa") == Ids{256, 256});
  }

  TEST_CASE("merges build on merges and never cross a piece") {
    const BpeEncoder encoder =
        MakeEncoder({.merges = {{"\u0120", "t"}, {"h", "e"}, {"\u0120t", "he"}, {"e", "\u0120"}}});
    // "e" and the space after it are in different pieces, so the last merge never happens.
    CHECK(encoder.Encode("he the") == Ids{257, 258});
  }

  TEST_CASE("merges written as one string, as older files have them") {
    const TinyTokenizer pairs = {.merges = {{"\u0120", "t"}, {"h", "e"}, {"\u0120t", "he"}}};
    TinyTokenizer strings = pairs;
    strings.merges_as_strings = true;
    CHECK(MakeEncoder(strings).Encode("the the") == MakeEncoder(pairs).Encode("the the"));
    CHECK(MakeEncoder(strings).Encode(" the") == Ids{258});
  }

  TEST_CASE("every byte has a token and comes back") {
    const BpeEncoder encoder = MakeEncoder({});
    std::string bytes;
    Ids expected;
    for (int byte = 0; byte < 256; ++byte) {
      bytes += static_cast<char>(byte);
      expected.push_back(byte);
    }
    CHECK(encoder.Encode(bytes) == expected);
    CHECK(encoder.Decode(expected) == bytes);
  }

  TEST_CASE("special tokens give no text and no prompt can name one") {
    const BpeEncoder encoder = MakeEncoder({});
    CHECK(encoder.FindSpecialToken("<|endoftext|>") == 256);
    CHECK(encoder.FindSpecialToken("<|pad|>") == std::nullopt);
    CHECK(encoder.vocab_size() == 257);
    CHECK(encoder.Decode({'a', 256, 'b', -1, 257}) == "ab");
    CHECK(encoder.Encode("<|endoftext|>").size() == 13);
  }

  TEST_CASE("the shipped tokenizer") {
    const BpeEncoder encoder = LoadShipped();
    CHECK(encoder.vocab_size() == 2048);
    CHECK(encoder.FindSpecialToken("<|endoftext|>") == 0);
    const std::string text =
        "The daemon verifies drafts; 0.5 \u2264 p, it's \"na\u00efve\" \U0001f44b\n\n";
    const Ids ids = encoder.Encode(text);
    CHECK(encoder.Decode(ids) == text);
    // It has learned something: this is far fewer tokens than bytes.
    CHECK(encoder.Encode("The engine submits a round and the daemon").size() < 20);
  }
}

}  // namespace
}  // namespace specd::toy
