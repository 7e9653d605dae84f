// Text of tokenizers in SentencePiece's style: byte pieces and the leading space. The numbers are
// those of the cases in docs of peers: HF tokenizers' tests of ByteFallback, and SentencePiece's
// rule that each byte outside a character is replaced.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "detokenizer/text_stream.h"
#include "tests/detokenizer/reference_text.h"

namespace specd {
namespace {

using Released = std::vector<std::string>;

// What each piece releases, and last what the end releases.
Released Release(const std::vector<std::string>& pieces, uint32_t stripped_spaces,
                 const TextOptions& options = {}, std::shared_ptr<const StopSet> stops = nullptr) {
  Vocabulary::Builder builder;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool is_special = pieces[i].substr(0, 2) == "<|";
    builder.Set(static_cast<TokenId>(i), pieces[i], {.added = is_special, .special = is_special});
  }
  builder.SetTextRules({.replacement = Utf8Replacement::kByte, .stripped_spaces = stripped_spaces});
  const Vocabulary vocabulary = std::move(builder).Build();
  TextStream stream(&vocabulary, std::move(stops), options);
  Released released;
  TextChunk chunk;
  for (size_t i = 0; i < pieces.size(); ++i) {
    chunk.Clear();
    stream.Push(static_cast<TokenId>(i), false, &chunk);
    released.push_back(chunk.text);
  }
  chunk.Clear();
  stream.Finish(TextEnd::kFlush, &chunk);
  released.push_back(chunk.text);
  return released;
}

const std::string kBad = "\xEF\xBF\xBD";

TEST_SUITE("unit") {
  TEST_CASE("byte pieces: a character comes with its last byte") {
    CHECK(Release({"\xE5", "\x8F", "\xAB", "a"}, 0) == Released{"", "", "叫", "a", ""});
    CHECK(Release({"\xC3", "\xA9"}, 0) == Released{"", "é", ""});
    CHECK(Release({"\n", " "}, 0) == Released{"\n", " ", ""});
    // A special token that is not shown does not end a run of bytes.
    CHECK(Release({"\xE5", "<|x|>", "\x8F", "\xAB"}, 0) == Released{"", "", "", "叫", ""});
  }

  TEST_CASE("byte pieces: each byte that is part of no character is replaced") {
    CHECK(Release({"\xE5", "\x8F", "a"}, 0) == Released{"", "", kBad + kBad + "a", ""});
    CHECK(Release({"\xE5", "\x8F", "\xAB", "\xE5", "a"}, 0) ==
          Released{"", "", "叫", "", kBad + "a", ""});
    // vLLM issue 17448: a lost byte before a piece must not take the character before it along.
    CHECK(Release({"\xC2", "\xA0", "\xC2", "»"}, 0) == Released{"", "\u00A0", "", kBad + "»", ""});
    CHECK(Release({"\xE5", "\x8F"}, 0) == Released{"", "", kBad + kBad});
    CHECK(Release({"\xFF", "\x80"}, 0) == Released{kBad, kBad, ""});
  }

  TEST_CASE("byte pieces: random bytes are replaced as SentencePiece's rule says") {
    std::mt19937 random(20261124);
    const std::string likely = "a\x80\x8F\xA0\xBF\xC2\xE0\xE4\xED\xF0\xF4\xFF";
    for (int round = 0; round < 3000; ++round) {
      std::string bytes;
      std::vector<std::string> pieces;
      for (size_t size = random() % 10; bytes.size() < size;) {
        bytes += likely[random() % likely.size()];
        pieces.emplace_back(1, bytes.back());
      }
      reference::Decoded expected = reference::DecodeUtf8(bytes, true);
      for (size_t i = 0; i < expected.pending_bytes; ++i) expected.text += kBad;
      std::string text;
      for (const std::string& part : Release(pieces, 0)) text += part;
      CHECK(text == expected.text);
    }
  }

  TEST_CASE("leading space: the first text loses it, whatever piece it is in") {
    CHECK(Release({" Hello", " world"}, 1) == Released{"Hello", " world", ""});
    CHECK(Release({" Hello", " world"}, 0) == Released{" Hello", " world", ""});
    CHECK(Release({"  a"}, 1) == Released{" a", ""});
    CHECK(Release({" ", " a"}, 1) == Released{"", " a", ""});
    CHECK(Release({" ", " a"}, 2) == Released{"", "a", ""});
    CHECK(Release({"a", " b"}, 1) == Released{"a", " b", ""});
    CHECK(Release({"<|x|>", " a"}, 1) == Released{"", "a", ""});
    CHECK(Release({"\xE5", " a"}, 1) == Released{"", kBad + " a", ""});
    // A text that continues another one begins with no leading space.
    CHECK(Release({" Hello"}, 1, {.continues = true}) == Released{" Hello", ""});
    // A special token that is shown is text.
    CHECK(Release({"<|x|>", " a"}, 1, {.skip_special_tokens = false}) ==
          Released{"<|x|>", " a", ""});
  }

  TEST_CASE("leading space: stop strings are looked for in the text without it") {
    const auto stops = [](const char* text) { return *StopSet::Create({text}); };
    CHECK(Release({" a", " b"}, 1, {}, stops(" a")) == Released{"a", " b", ""});
    CHECK(Release({" a", " b"}, 1, {}, stops("a b")) == Released{"", "", ""});
    CHECK(Release({" a", " b"}, 1, {}, stops(" b")) == Released{"a", "", ""});
  }
}

}  // namespace
}  // namespace specd
