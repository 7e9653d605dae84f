#include <doctest/doctest.h>
#include <fmt/format.h>
#include <simdjson.h>

#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tests/tools/printed_output.h"
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

constexpr int32_t kVocabSize = 2000;

// What a run prints, as lines of JSON.
absl::StatusOr<std::string> Printed(const std::vector<GrammarText>& texts) {
  const std::vector<std::string> words = {fmt::format("--vocab={}", kVocabSize), "--seconds=0"};
  const absl::StatusOr<Flags> flags = Flags::Read("grammar", TableOf(GrammarCommand()), words);
  REQUIRE(flags.ok());
  absl::Status status;
  std::string printed =
      JsonPrinted("grammar", [&](Output* out) { status = MeasureGrammars(*flags, texts, out); });
  if (!status.ok()) return status;
  return printed;
}

TEST_CASE("the suite measures every case of every constraint") {
  int64_t num_tokens = 0;
  const SyntheticVocabulary made(kVocabSize);
  for (const GrammarText& text : GrammarTexts()) {
    for (const std::string_view instance : text.instances) {
      num_tokens += std::ssize(made.Tokenize(instance)) + 1;
    }
  }
  const absl::StatusOr<std::string> printed = Printed(GrammarTexts());
  REQUIRE_MESSAGE(printed.ok(), printed.status().ToString());
  std::istringstream lines(*printed);
  size_t num_lines = 0;
  simdjson::dom::parser parser;
  for (std::string text; std::getline(lines, text); ++num_lines) {
    const simdjson::dom::object line = parser.parse(text).get_object();
    CHECK(std::string_view(line["case"]) == GrammarCommand().cases[num_lines].name);
    CHECK(int64_t(line["checked"]) == num_tokens);
    // Each text is run twice at least; a mask is asked for before each of its tokens.
    const auto num_runs = int64_t(line["samples"]);
    CHECK(num_runs >= 2 * (num_lines == 0 ? 15 : num_tokens));
    CHECK(double(line["median"]) > 0);
    CHECK(double(line["p99"]) >= double(line["median"]));
    CHECK(line["base_median"].error() != simdjson::SUCCESS);
    CHECK(line["target"].error() != simdjson::SUCCESS);  // the design names another vocabulary
  }
  CHECK(num_lines == 3);
}

TEST_CASE("the suite ends where a constraint is refused, or a text breaks it") {
  for (const auto& [pattern, text, why] :
       {std::tuple("(a", "a", "specd: "),
        std::tuple("[0-9]{2,4}x", "1x", "token 1 of 3 is forbidden"),
        // Its end is not allowed.
        std::tuple("[0-9]{2,4}x", "12", "token 1 of 2 is forbidden")}) {
    const GrammarText wrong = {"wrong", GrammarKind::kRegex, pattern, {text}};
    const absl::Status status = Printed({GrammarTexts().front(), wrong}).status();
    CHECK(status.code() == absl::StatusCode::kInternal);
    CHECK(std::string(status.message()).starts_with("wrong: specd: "));
    CHECK(std::string(status.message()).find(why) != std::string::npos);
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace specd::bench
