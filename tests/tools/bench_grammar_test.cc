#include <doctest/doctest.h>
#include <simdjson.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/compiler/grammar_compiler.h"
#include "tools/bench/grammar_replay.h"
#include "tools/bench/grammar_suite.h"
#include "tools/bench/synthetic_vocabulary.h"

namespace specd::bench {
namespace {

using grammar::GrammarKind;

TEST_SUITE_BEGIN("unit");

std::string TextOf(const Vocabulary& vocabulary, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += vocabulary.Bytes(id);
  return text;
}

TEST_CASE("a synthetic vocabulary has different pieces, and specials at its end") {
  for (const int32_t size : {SyntheticVocabulary::kSizeMin, 20'000}) {
    const SyntheticVocabulary made(size);
    const Vocabulary& vocabulary = made.vocabulary();
    CHECK(vocabulary.size() == size);
    std::set<std::string_view> pieces;
    for (TokenId id = 0; id < size; ++id) {
      CHECK(!vocabulary.Bytes(id).empty());
      CHECK(vocabulary.IsSpecial(id) == (id >= made.eos_id()));
      pieces.insert(vocabulary.Bytes(id));
    }
    CHECK(pieces.size() == static_cast<size_t>(size));
    for (int byte = 0; byte < 256; ++byte) {
      CHECK(pieces.count(std::string(1, static_cast<char>(byte))) == 1);
    }
  }
}

TEST_CASE("a text is split into the longest pieces of a synthetic vocabulary") {
  const SyntheticVocabulary made(20'000);
  for (const GrammarText& text : GrammarTexts()) {
    for (const std::string_view instance : text.instances) {
      const std::vector<TokenId> ids = made.Tokenize(instance);
      CHECK(TextOf(made.vocabulary(), ids) == instance);
      // A name may be in no piece, and then it is spelled letter by letter.
      CHECK(ids.size() <= instance.size());
    }
  }
  const std::vector<TokenId> ids = made.Tokenize("\": \"name 123456    \xE4\xB8");
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.emplace_back(made.vocabulary().Bytes(id));
  CHECK(pieces ==
        std::vector<std::string>{"\": \"", "name", " ", "123", "456", "    ", "\xE4\xB8"});
}

TEST_CASE("a replay is refused where its text breaks the constraint") {
  const SyntheticVocabulary made(SyntheticVocabulary::kSizeMin);
  grammar::GrammarCompiler compiler(
      {.vocabulary = &made.vocabulary(), .vocab_size = SyntheticVocabulary::kSizeMin});
  const auto check = [&](std::string_view text) {
    std::vector<TokenId> tokens = made.Tokenize(text);
    tokens.push_back(made.eos_id());
    return GrammarReplay(&compiler, {.kind = GrammarKind::kRegex, .text = "[0-9]{2,4}x"}, tokens,
                         SyntheticVocabulary::kSizeMin)
        .Check();
  };
  CHECK(check("12x").ok());
  CHECK(check("1x").code() == absl::StatusCode::kInternal);
  CHECK(check("12").code() == absl::StatusCode::kInternal);  // its end is not allowed
}

TEST_CASE("a batch is filled once cold, and then warm, by any number of threads") {
  const SyntheticVocabulary made(SyntheticVocabulary::kSizeMin);
  grammar::GrammarCompiler compiler(
      {.vocabulary = &made.vocabulary(), .vocab_size = SyntheticVocabulary::kSizeMin});
  const auto replay_of = [&](const char* pattern, std::string_view whole) {
    std::vector<TokenId> tokens = made.Tokenize(whole);
    tokens.push_back(made.eos_id());
    return GrammarReplay(&compiler, {.kind = GrammarKind::kRegex, .text = pattern}, tokens,
                         SyntheticVocabulary::kSizeMin);
  };
  CHECK_FALSE(replay_of("[0-9]{2,4}x", "12x").HasRounds());
  const GrammarReplay replay = replay_of("(x;)+", "x;x;x;x;x;x;x;");
  REQUIRE(replay.HasRounds());
  const GrammarReplay* const replays[] = {&replay};
  for (const int32_t threads : {1, 3}) {
    // Rows are kept by constraint, and each sequence has its own.
    const size_t before = compiler.mask_bytes();
    FillTimes times;
    FillBatch(replays, {.num_sequences = 9, .threads = threads}, &times);
    CHECK(compiler.mask_bytes() > before);
    CHECK(times.cold.size() == 1);
    CHECK(times.warm.size() == kWarmFills);
  }
}

// A run's lines of JSON.
std::vector<std::string> LinesOf(const GrammarOptions& options) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  Output out({.suite = "grammar", .command = "", .format = Format::kJson, .out = file});
  const absl::Status status = MeasureGrammars(options, &out);
  REQUIRE(std::fclose(file) == 0);
  std::istringstream printed(text);
  std::free(text);
  REQUIRE_MESSAGE(status.ok(), status.ToString());
  std::vector<std::string> lines;
  for (std::string line; std::getline(printed, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("the suite measures every case of every constraint") {
  GrammarOptions options;
  for (size_t i = 0; i < kNumGrammarCases; ++i) {
    options.cases.push_back(static_cast<GrammarCase>(i));
  }
  for (const GrammarText& text : GrammarTexts()) {
    options.texts.push_back(&text);
  }
  options.vocab_size = 2000;
  options.each = true;
  options.seconds = 0;
  const std::vector<std::string> lines = LinesOf(options);
  // A country is shorter than a draft and its rounds are none.
  CHECK(lines.size() >= kNumGrammarCases * options.texts.size());
  int64_t num_checked = 0;
  simdjson::dom::parser parser;
  for (const std::string& text : lines) {
    const simdjson::dom::object line = parser.parse(text).get_object();
    CHECK(int64_t(line["samples"]) > 0);
    CHECK(double(line["median"]) > 0);
    CHECK(double(line["p99"]) >= double(line["median"]));
    CHECK(line["base_median"].error() != simdjson::SUCCESS);
    CHECK(line["target"].error() != simdjson::SUCCESS);  // the design names another vocabulary
    if (std::string_view(line["case"]) != "compile") continue;
    const auto checked = int64_t(line["checked"]);
    num_checked += std::string_view(line["constraint"]) == "all" ? -checked : checked;
  }
  CHECK(num_checked == 0);  // all = the sum of each
}

TEST_CASE("a constraint that the engine refuses is a line, and the others are measured") {
  GrammarOptions options;
  options.cases = {GrammarCase::kCompile, GrammarCase::kFillThreads};
  const GrammarText refused = {"refused", GrammarKind::kRegex, "(a", {"a"}};
  options.texts = {&refused, &GrammarTexts().front()};
  options.vocab_size = 2000;
  options.seconds = 0;
  int num_refused = 0;
  int num_measured = 0;
  simdjson::dom::parser parser;
  for (const std::string& text : LinesOf(options)) {
    const simdjson::dom::object line = parser.parse(text).get_object();
    const bool is_refused = line["refused_by"].error() == simdjson::SUCCESS;
    ++(is_refused ? num_refused : num_measured);
    CHECK(is_refused == (std::string_view(line["constraint"]) == "refused"));
    CHECK(is_refused == (line["median"].error() != simdjson::SUCCESS));
    if (is_refused) CHECK(!std::string_view(line["refusal"]).empty());
  }
  CHECK(num_refused == 1);
  CHECK(num_measured > 1);
}

TEST_SUITE_END();

}  // namespace
}  // namespace specd::bench
