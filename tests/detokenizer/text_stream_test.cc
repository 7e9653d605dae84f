#include "detokenizer/text_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/detokenizer/reference_text.h"
#include "tests/detokenizer/stream_driver.h"

namespace specd {
namespace {

using Released = std::vector<std::string>;

constexpr TokenFlags kAdded{.added = true, .special = false};
constexpr TokenFlags kSpecial{.added = true, .special = true};
const std::string kReplacement = "\xEF\xBF\xBD";

std::vector<bool> AcceptedDraftOfBytes(const TextChunk& chunk) {
  std::vector<bool> accepted_draft;
  for (const TextSpan& span : chunk.spans) {
    accepted_draft.insert(accepted_draft.end(), span.size_bytes, span.accepted_draft);
  }
  return accepted_draft;
}

bool HasMergedSpans(const TextChunk& chunk) {
  for (size_t i = 0; i < chunk.spans.size(); ++i) {
    if (chunk.spans[i].size_bytes == 0) return false;
    if (i > 0 && chunk.spans[i].accepted_draft == chunk.spans[i - 1].accepted_draft) return false;
  }
  return true;
}

// A random sequence: tokens that cut code points, special and added tokens, stop strings.
struct RandomCase {
  explicit RandomCase(std::mt19937_64& random) {
    const std::vector<std::string> pieces = {"a",
                                             "b",
                                             "ab",
                                             "\xE4",
                                             "\xBD",
                                             "\xA0",
                                             "\xE4\xBD",
                                             "你",
                                             "a\xF0\x9F",
                                             "\xFF",
                                             "\x98",
                                             "\x98\x80"
                                             "b",
                                             "",
                                             "é",
                                             "\xC3",
                                             "\xA9",
                                             "\n",
                                             kReplacement};
    for (const std::string& piece : pieces) tokens.push_back({piece});
    tokens.push_back({"<eos>", kSpecial});
    tokens.push_back({"<t>", kAdded});
    const std::vector<std::string> stop_pieces = {"a",  "b",          "你",  "é",    "😀",
                                                  "\n", kReplacement, "<t>", "<eos>"};
    for (size_t count = random() % 4; count > 0; --count) {
      std::string stop;
      for (size_t length = 1 + random() % 3; length > 0; --length) {
        stop += stop_pieces[random() % stop_pieces.size()];
      }
      stops.push_back(stop);
    }
    options.skip_special_tokens = random() % 2 == 0;
    options.include_stop = random() % 2 == 0;
    is_last_withheld = random() % 3 == 0;
    for (size_t count = random() % 16; count > 0; --count) {
      const size_t id = random() % (tokens.size() + 1);  // one past the end: an unknown id
      ids.push_back(static_cast<TokenId>(id));
      const bool is_known = id < tokens.size();
      sequence.push_back({is_known ? tokens[id].bytes : "", random() % 2 == 0,
                          is_known && tokens[id].flags.special && options.skip_special_tokens});
    }
  }

  std::vector<TestToken> tokens;
  std::vector<std::string> stops;
  TextOptions options;
  bool is_last_withheld = false;
  std::vector<TokenId> ids;
  std::vector<reference::Token> sequence;
};

// Pushes the whole case; a new chunk is begun after each token with probability 1/one_in.
struct RunResult {
  TextChunk all;
  std::optional<int> stop;
  size_t num_tokens = 0;
  bool is_sound = true;  // spans cover each chunk, text_offset follows the text
};

RunResult RunCase(const RandomCase& random_case, uint64_t one_in, std::mt19937_64& random) {
  const Vocabulary vocabulary = MakeVocabulary(random_case.tokens);
  TextStream stream(&vocabulary, MakeStops(random_case.stops), random_case.options);
  RunResult result;
  TextChunk chunk;
  const auto take_chunk = [&] {
    const std::vector<bool> accepted_draft = AcceptedDraftOfBytes(chunk);
    result.is_sound =
        result.is_sound && accepted_draft.size() == chunk.text.size() && HasMergedSpans(chunk);
    for (size_t i = 0; i < std::min(chunk.text.size(), accepted_draft.size()); ++i) {
      result.all.Append(std::string_view(chunk.text).substr(i, 1),
                        {.accepted_draft = accepted_draft[i]});
    }
    result.is_sound = result.is_sound && stream.text_offset() == result.all.text.size();
    chunk.Clear();
  };
  for (size_t i = 0; i < random_case.ids.size() && !result.stop; ++i) {
    const bool is_withheld = random_case.is_last_withheld && i + 1 == random_case.ids.size();
    const bool accepted_draft = random_case.sequence[i].accepted_draft;
    result.stop = is_withheld ? stream.PushWithheld(random_case.ids[i], accepted_draft, &chunk)
                              : stream.Push(random_case.ids[i], accepted_draft, &chunk);
    ++result.num_tokens;
    if (random() % one_in == 0) take_chunk();
  }
  stream.Finish(TextEnd::kFlush, &chunk);
  take_chunk();
  return result;
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("text stream: random sequences in any grouping equal decoding all at once") {
    constexpr uint64_t kSeed = 49391;
    for (uint64_t round = 0; round < 30000; ++round) {
      std::mt19937_64 random(kSeed + round);
      INFO("seed ", kSeed + round);
      const RandomCase random_case(random);
      const reference::Text expected =
          reference::DecodeSequence(random_case.sequence, random_case.is_last_withheld,
                                    random_case.stops, random_case.options.include_stop);
      for (const uint64_t one_in : {uint64_t{1}, uint64_t{3}, uint64_t{1} << 40}) {
        const RunResult result = RunCase(random_case, one_in, random);
        REQUIRE(result.all.text == expected.text);
        REQUIRE(result.stop == expected.stop);
        REQUIRE(result.num_tokens == expected.num_tokens);
        REQUIRE(AcceptedDraftOfBytes(result.all) == expected.accepted_draft);
        REQUIRE(result.is_sound);
      }
    }
  }

  TEST_CASE("text stream: a code point comes with its last token (vLLM Rust frontend)") {
    Driver driver(Plain({"\xE4", "\xBD", "\xA0", "o", "k"}));
    CHECK(driver.PushAll() == Released{"", "", "你", "o", "k"});
    CHECK(driver.Finish().empty());
  }

  TEST_CASE("text stream: an unfinished code point at the end is one replacement") {
    Driver driver(Plain({"ok ", "\xE4", "\xBD"}));
    CHECK(driver.PushAll() == Released{"ok ", "", ""});
    CHECK(driver.Finish() == kReplacement);
  }

  TEST_CASE("text stream: a discarded end has no replacement (osaurus #109)") {
    Driver driver(Plain({"ok ", "ST", "\xE4"}), {"STOP"});
    driver.PushAll();
    CHECK(driver.Finish(TextEnd::kDiscard).empty());
    CHECK(driver.text == "ok ");
  }

  TEST_CASE("text stream: a blank before a partial emoji is not withheld (HF DecodeStream)") {
    Driver driver(Plain({" \xF0\x9F\x91", "\x8B"}));
    CHECK(driver.PushAll() == Released{" ", "👋"});
  }

  TEST_CASE("text stream: unknown ids are of zero width and cut nothing (fastokens #30)") {
    const Vocabulary vocabulary = MakeVocabulary(Plain({"\xE4", "\xBD\xA0"}));
    TextStream stream(&vocabulary, nullptr, {});
    TextChunk chunk;
    CHECK_FALSE(stream.Push(0, false, &chunk));
    for (const TokenId id : {TokenId{151927}, TokenId{-1}, std::numeric_limits<TokenId>::max(),
                             std::numeric_limits<TokenId>::min()}) {
      CHECK_FALSE(stream.Push(id, false, &chunk));
    }
    CHECK(chunk.text.empty());
    CHECK_FALSE(stream.Push(1, false, &chunk));
    CHECK(chunk.text == "你");
  }

  TEST_CASE("text stream: an ended stream adds nothing more, whatever is pushed") {
    Driver driver(Plain({"a", "\xE4"}));
    driver.PushAll();
    CHECK(driver.Finish() == kReplacement);
    TextChunk chunk;
    CHECK_FALSE(driver.stream.Push(0, false, &chunk));
    CHECK_FALSE(driver.stream.PushWithheld(0, false, &chunk));
    driver.stream.Finish(TextEnd::kFlush, &chunk);
    CHECK(chunk.text.empty());
    CHECK(driver.stream.ended());
    CHECK(driver.stream.text_offset() == 4);
  }
}

}  // namespace specd
