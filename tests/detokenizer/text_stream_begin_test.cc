// Streams that begin in the middle of a text: after a prompt, after outputs that were given before,
// and as the copy of another stream. The expected texts are those of tests/detokenizer/
// reference_text.h, which decodes all ids at once.
#include <doctest/doctest.h>

#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "detokenizer/text_stream.h"
#include "tests/detokenizer/reference_text.h"
#include "tests/detokenizer/stream_driver.h"

namespace specd {
namespace {

constexpr std::string_view kEuro = "\xE2\x82\xAC";

// What a reader gets of a stream, and how the stream ended.
struct Got {
  std::string text;
  std::optional<int> stop;
  size_t num_tokens = 0;
};

Got Read(TextStream stream, std::span<const TokenId> ids) {
  Got got;
  TextChunk chunk;
  const uint64_t begin = stream.text_offset();
  for (const TokenId id : ids) {
    if (got.stop) break;
    got.stop = stream.Push(id, false, &chunk);
    ++got.num_tokens;
  }
  stream.Finish(TextEnd::kFlush, &chunk);
  got.text = chunk.text;
  CHECK(stream.text_offset() - begin == got.text.size());
  return got;
}

std::vector<TokenId> Ids(size_t count) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(i));
  return ids;
}

// Each byte is a token.
std::vector<std::string> Bytes(std::string_view text) {
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  return bytes;
}

// A sequence whose token i has piece i, opened again after some of its outputs.
struct Reopened {
  explicit Reopened(const std::vector<std::string>& pieces, TextRules rules = {})
      : ids(Ids(pieces.size())) {
    Vocabulary::Builder builder;
    for (const TokenId id : ids) builder.Set(id, pieces[static_cast<size_t>(id)], {});
    builder.SetTextRules(rules);
    vocabulary = std::move(builder).Build();
  }
  Got After(size_t num_prompt, size_t num_outputs, const std::vector<std::string>& stops = {},
            const TextOptions& options = {}) const {
    TextStream stream(&vocabulary, MakeStops(stops), options);
    const std::span<const TokenId> all = ids;
    stream.Prime(all.first(num_prompt), all.subspan(num_prompt, num_outputs));
    return Read(stream, all.subspan(num_prompt + num_outputs));
  }
  std::vector<TokenId> ids;
  Vocabulary vocabulary;
};

TEST_SUITE("unit") {
  TEST_CASE("a stop string in the prompt, or begun there, is not found") {
    const Reopened sequence(Bytes("xyxyz"));
    const Got got = sequence.After(3, 0, {"xy"});
    CHECK_FALSE(got.stop);
    CHECK(got.text == "yz");
    // It is no stop string either once outputs follow.
    CHECK_FALSE(sequence.After(3, 1, {"xyz"}).stop);
    CHECK(sequence.After(2, 1, {"xyz"}).stop == 0);
  }

  TEST_CASE("a stop string that was complete before the cut is over") {
    // It did not count, because of min_tokens, or the engine went on all the same.
    const Reopened sequence(Bytes("aaab"));
    CHECK(sequence.After(0, 2, {"aa"}).stop == 0);
    CHECK(sequence.After(0, 3, {"aa"}).text == "b");
    const Got late = sequence.After(0, 2, {"aa"}, {.min_tokens = 1});
    CHECK_FALSE(late.stop);
    CHECK(late.text == "ab");
  }

  TEST_CASE("a code point begun before the stream is completed") {
    const Reopened sequence(Bytes(std::string(kEuro) + "\xF0\x9F\x98\x80!"));
    for (size_t prompt = 0; prompt <= 3; ++prompt) {
      for (size_t outputs = 0; outputs + prompt <= 3; ++outputs) {
        const bool is_begun = prompt + outputs < 3;
        CHECK(sequence.After(prompt, outputs).text ==
              (is_begun ? std::string(kEuro) : "") + "\xF0\x9F\x98\x80!");
      }
    }
    for (size_t prompt = 3; prompt < 7; ++prompt) {
      CHECK(sequence.After(prompt, 0).text == "\xF0\x9F\x98\x80!");
      CHECK(sequence.After(1, prompt - 1).text == "\xF0\x9F\x98\x80!");
      CHECK(sequence.After(prompt, 0, {"\xF0\x9F\x98\x80"}).stop == 0);
    }
  }

  TEST_CASE("bytes before the stream that prove ill-formed give no text") {
    // The reader of the prompt, or of the earlier outputs, has the U+FFFD for them.
    const Reopened broken(Bytes("\xE2\x82z"));
    CHECK(broken.After(1, 0).text == "z");
    CHECK(broken.After(2, 0).text == "z");
    CHECK(broken.After(0, 1).text == "z");
    const Reopened unfinished(Bytes("\xE2\x82"));
    CHECK(unfinished.After(1, 0).text.empty());
    CHECK(unfinished.After(2, 0).text.empty());
    CHECK(unfinished.After(0, 0).text == kReplacementCharacter);
    // SentencePiece's decoders replace every byte, so that of the output is text.
    const Reopened each(Bytes("\xE2\x82z"), {.replacement = Utf8Replacement::kByte});
    CHECK(each.After(1, 0).text == std::string(kReplacementCharacter) + "z");
    CHECK(each.After(2, 0).text == "z");
    // A stop string may have such a character in it all the same.
    CHECK(broken.After(0, 1, {"\xEF\xBF\xBDz"}).stop == 0);
    CHECK(broken.After(0, 1, {"\xEF\xBF\xBDz"}, {.include_stop = true}).text == "z");
  }

  TEST_CASE("a U+FFFD that was written is a code point like any other") {
    const Reopened sequence(Bytes("\xEF\xBF\xBD!"));
    for (size_t prompt = 1; prompt < 3; ++prompt) {
      CHECK(sequence.After(prompt, 0).text == "\xEF\xBF\xBD!");
    }
    CHECK(sequence.After(3, 0).text == "!");
  }

  // The text after a prompt lost its leading space: "in a village" + " by the sea" gave "by the
  // sea".
  TEST_CASE("leading spaces are those of the whole text, prompt included") {
    const TextRules rules{.stripped_spaces = 1};
    const Reopened village({" in", " a", " village", " by", " the", " sea"}, rules);
    CHECK(village.After(3, 0).text == " by the sea");
    CHECK(village.After(2, 1).text == " by the sea");
    CHECK(village.After(0, 3).text == " by the sea");
    CHECK(village.After(0, 0).text == "in a village by the sea");
    CHECK(village.After(3, 0, {" by"}).stop == 0);
    CHECK(village.After(3, 0, {" by"}).text.empty());
    const Reopened sequence({" ", " a", " b"}, rules);
    CHECK(sequence.After(0, 0).text == " a b");
    CHECK(sequence.After(0, 1).text == " a b");
    CHECK(sequence.After(1, 0).text == " a b");  // the prompt's space was the leading one
    CHECK(sequence.After(0, 2).text == " b");
    const Reopened late({"", " a"}, rules);
    CHECK(late.After(0, 1).text == "a");
    CHECK(late.After(1, 0).text == "a");  // nothing precedes
    const Reopened begun({"\xE2", "\x82", "\xAC", " a"}, rules);
    CHECK(begun.After(2, 0).text == std::string(kEuro) + " a");
  }

  TEST_CASE("a fork at every token finds the stop string and holds its text") {
    const std::string text = "ab<stop>cd";
    const Reopened sequence(Bytes(text));
    const std::span<const TokenId> ids = sequence.ids;
    for (size_t cut = 0; cut < 8; ++cut) {
      TextStream parent(&sequence.vocabulary, MakeStops({"<stop>"}), {});
      TextChunk given;
      for (const TokenId id : ids.first(cut)) CHECK_FALSE(parent.Push(id, false, &given));
      CHECK(parent.Fork().text_offset() == 0);
      const Got copy = Read(parent.Fork(), ids.subspan(cut));
      CHECK(copy.stop == 0);
      CHECK(cut + copy.num_tokens == 8);
      CHECK(given.text + copy.text == "ab");
      // The copy may also leave the way of its source: what the source holds back is text then.
      const std::vector<TokenId> other = {8};
      CHECK(given.text + Read(parent.Fork(), other).text == text.substr(0, cut) + "c");
      // The source does not notice.
      const Got rest = Read(parent, ids.subspan(cut));
      CHECK(rest.stop == 0);
    }
  }

  TEST_CASE("a fork in the middle of a code point completes it") {
    const Reopened sequence(Bytes(kEuro));
    TextStream parent(&sequence.vocabulary, nullptr, {});
    TextChunk given;
    for (const TokenId id : {0, 1}) parent.Push(id, false, &given);
    CHECK(given.text.empty());
    CHECK(Read(parent.Fork(), std::vector<TokenId>{2}).text == kEuro);
    CHECK(Read(parent.Fork(), std::vector<TokenId>{}).text == kReplacementCharacter);
  }

  // The reader of both streams, at every place where a random sequence can be cut.
  TEST_CASE("random texts end alike, wherever they are cut") {
    std::mt19937 random(19);
    const auto below = [&random](size_t bound) { return random() % bound; };
    const std::vector<std::string> letters = {
        "a", "b", "ab", "ba", "", "\xE2\x82\xAC", "\xE2", "\x82", "\xAC", "a\xE2\x82", "\xF0\x9F"};
    int num_cut_stops = 0;
    for (int trial = 0; trial < 3000; ++trial) {
      std::vector<std::string> pieces;
      for (size_t i = 0; i < 12; ++i) pieces.push_back(letters[below(letters.size())]);
      std::vector<std::string> stops;
      for (size_t i = 0; i < 1 + below(2); ++i) {
        std::string stop;
        for (size_t size = 1 + below(4); size > 0; --size) {
          const std::string options[] = {"a", "b", std::string(kEuro), "\xEF\xBF\xBD"};
          stop += options[below(4)];
        }
        stops.push_back(stop);
      }
      const TextOptions options{.include_stop = below(2) == 0};
      std::vector<reference::Token> tokens;
      for (const std::string& piece : pieces) tokens.push_back({piece});
      const reference::Text whole =
          reference::DecodeSequence(tokens, false, stops, options.include_stop);
      const Reopened sequence(pieces);
      for (size_t cut = 0; cut < whole.num_tokens; ++cut) {
        CAPTURE(trial);
        CAPTURE(cut);
        const Got got = sequence.After(0, cut, stops, options);
        CHECK(got.stop == whole.stop);
        CHECK(cut + got.num_tokens == whole.num_tokens);
        std::string before;
        for (size_t i = 0; i < cut; ++i) before += pieces[i];
        const reference::Decoded given = reference::DecodeUtf8(before);
        // The earlier stream ended with U+FFFD where a code point was not complete.
        std::string shown = given.text + (given.pending ? "\xEF\xBF\xBD" : "");
        if (given.pending && !whole.text.starts_with(shown) &&
            whole.text.size() > given.text.size()) {
          shown = given.text;  // it was completed
        }
        if (whole.text.size() >= shown.size()) {
          CHECK(shown + got.text == whole.text);
        } else {
          CHECK(got.text.empty());
          CHECK(shown.starts_with(whole.text));
          num_cut_stops += whole.stop.has_value() ? 1 : 0;
        }
      }
    }
    CHECK(num_cut_stops > 100);
  }
}

}  // namespace
}  // namespace specd
