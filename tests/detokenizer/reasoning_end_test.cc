// The thought and the answer of a text, against brute force: a marker is searched in the bytes of
// all tokens at once.
#include "detokenizer/reasoning_end.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "detokenizer/text_stream.h"
#include "tests/detokenizer/reference_text.h"
#include "tests/detokenizer/stream_driver.h"

namespace specd {
namespace {

const std::vector<std::string> kPieces = {"<",    "/",  "t", ">",  "</",  "t>x",       ">\xC3",
                                          "\xA9", "/t", "a", " <", "</t", "t>\xC3\xA9"};
constexpr std::string_view kMarker = "</t>";

std::vector<TestToken> RandomTokens(size_t count, std::mt19937* random) {
  std::vector<TestToken> tokens;
  for (size_t i = 0; i < count; ++i) {
    if ((*random)() % 12 == 0) {
      tokens.push_back({std::string(kMarker), {.added = true, .special = true}});
    } else {
      tokens.push_back({kPieces[(*random)() % kPieces.size()]});
    }
  }
  return tokens;
}

TEST_SUITE("unit") {
  TEST_CASE("the text up to the end marker is of the thought, however tokens spell it") {
    std::mt19937 random(41);
    int num_inside = 0;
    for (int trial = 0; trial < 20000; ++trial) {
      const std::vector<TestToken> tokens = RandomTokens(1 + random() % 12, &random);
      const bool skips = random() % 2 == 0;
      std::string all;    // bytes of tokens, shown or not
      std::string shown;  // of those that are shown
      std::string thought;
      size_t num_thought = 0;
      for (const TestToken& token : tokens) {
        const bool was_open = all.find(kMarker) == std::string::npos;
        all += token.bytes;
        const bool is_shown = !(skips && token.flags.special);
        if (is_shown) shown += token.bytes;
        if (!was_open) continue;
        ++num_thought;
        const size_t found = all.find(kMarker);
        thought = shown;
        if (found == std::string::npos || !is_shown) continue;
        thought.resize(shown.size() - (all.size() - found - kMarker.size()));
      }
      const bool is_over = all.find(kMarker) != std::string::npos;
      const std::string expected = reference::DecodeUtf8(shown).text;
      // An unfinished character is U+FFFD at the end, of the part that is open there.
      const auto ending = [](const std::string& bytes) {
        const auto decoded = reference::DecodeUtf8(bytes);
        return decoded.text + (decoded.pending ? "\xEF\xBF\xBD" : "");
      };
      const size_t expected_bytes =
          is_over ? reference::DecodeUtf8(thought).text.size() : ending(thought).size();

      const Vocabulary vocabulary = MakeVocabulary(tokens);
      auto stops = MakeStops(random() % 2 == 0 ? std::vector<std::string>{"zz", "<</"}
                                               : std::vector<std::string>{});
      TextStream stream(&vocabulary, stops,
                        {.skip_special_tokens = skips,
                         .reasoning = std::make_shared<const ReasoningEnd>("<t>", "</t>")});
      TextChunk chunk;
      size_t counted = 0;
      bool stopped = false;
      for (size_t i = 0; i < tokens.size() && !stopped; ++i) {
        counted += stream.IsReasoning() ? 1 : 0;
        stopped = stream.Push(static_cast<TokenId>(i), i % 2 == 0, &chunk).has_value();
      }
      if (stopped) continue;
      CAPTURE(shown);
      CHECK(counted == num_thought);
      CHECK(stream.IsReasoning() == !is_over);
      stream.Finish(TextEnd::kFlush, &chunk);
      CHECK(chunk.text == ending(shown));
      size_t bytes = 0;
      bool answered = false;
      for (const TextSpan& span : chunk.spans) {
        CHECK_FALSE((answered && span.is_reasoning));
        answered = !span.is_reasoning;
        if (span.is_reasoning) bytes += span.size_bytes;
      }
      CHECK(bytes == expected_bytes);
      num_inside += is_over && bytes > 0 && bytes < chunk.text.size() ? 1 : 0;
    }
    CHECK(num_inside > 1000);
  }

  TEST_CASE("a marker that begins inside itself is found where it first ends, in any pieces") {
    std::mt19937 random(42);
    const auto letters = [&random](size_t size) {
      std::string text(size, 'a');
      for (char& each : text) each = random() % 4 == 0 ? 'b' : 'a';
      return text;
    };
    int num_found = 0;
    for (int trial = 0; trial < 20000; ++trial) {
      const ReasoningEnd end("", letters(1 + random() % 8));
      const std::string text = letters(random() % 40);
      uint32_t progress = 0;
      size_t read = 0;
      size_t ended_at = std::string::npos;
      while (read < text.size() && progress != ReasoningEnd::kOver) {
        const std::string_view piece = std::string_view(text).substr(read, 1 + random() % 9);
        const ReasoningEnd::Advance next = end.After(progress, piece);
        read += piece.size();
        progress = next.progress;
        if (progress == ReasoningEnd::kOver) ended_at = read - next.rest_bytes - end.end().size();
      }
      CAPTURE(text);
      CAPTURE(end.end());
      CHECK(ended_at == text.find(end.end()));
      num_found += ended_at != std::string::npos ? 1 : 0;
    }
    CHECK(num_found > 5000);
  }

  TEST_CASE("the last marker of a prompt decides, however long the prompt is") {
    const ReasoningEnd end("<t>", "</t>");
    const Vocabulary vocabulary =
        MakeVocabulary(Plain({"<", "t", ">", "/", "a", "<t>", "</t>", "t></"}));
    std::mt19937 random(43);
    for (int trial = 0; trial < 3000; ++trial) {
      std::vector<TokenId> prompt(random() % (trial % 10 == 0 ? 2000 : 12));
      // Few markers in long prompts, so that they lie in any block.
      for (TokenId& id : prompt) {
        id = static_cast<TokenId>(prompt.size() > 12 && random() % 300 != 0 ? 4 : random() % 8);
      }
      std::string text;
      for (const TokenId id : prompt) text += vocabulary.Bytes(id);
      const auto last_of = [&](std::string_view marker) {
        const size_t found = text.rfind(marker);
        return found == std::string::npos ? -1 : static_cast<int>(found);
      };
      uint32_t expected = ReasoningEnd::kOver;
      if (last_of("</t>") < 0 || last_of("<t>") > last_of("</t>")) {
        for (expected = 3; expected > 0; --expected) {
          if (text.ends_with(kMarker.substr(0, expected))) break;
        }
      }
      CAPTURE(text);
      CHECK(end.AfterPrompt(prompt, vocabulary) == expected);
    }
  }
}

}  // namespace
}  // namespace specd
