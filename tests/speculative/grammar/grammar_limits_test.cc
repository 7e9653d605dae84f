// Long texts under one constraint: no limit of its states may end a healthy sequence or thin out a
// mask.
#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/compiler/grammar_compiler.h"

namespace specd::grammar {
namespace {

constexpr TokenId kEos = 256;

struct Fixture {
  explicit Fixture(const std::vector<std::string>& more = {}) {
    Vocabulary::Builder builder;
    for (TokenId id = 0; id < 256; ++id) builder.Set(id, std::string(1, static_cast<char>(id)), {});
    builder.Set(kEos, "</s>", {.added = true, .special = true});
    TokenId id = kEos + 1;
    for (const std::string& piece : more) builder.Set(id++, piece, {});
    vocabulary = std::move(builder).Build();
    compiler = std::make_unique<GrammarCompiler>(
        GrammarCompilerOptions{.vocabulary = &*vocabulary, .vocab_size = id});
  }
  std::shared_ptr<const CompiledGrammar> Compile(GrammarKind kind, const std::string& text) const {
    auto compiled = compiler->CompileAnew({.kind = kind, .text = text});
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().ToString());
    return *std::move(compiled);
  }
  std::unique_ptr<GrammarMatcher> Matcher(GrammarKind kind, const std::string& text) const {
    return Compile(kind, text)->NewMatcher({.stop_ids = {kEos}});
  }
  std::optional<Vocabulary> vocabulary;
  std::unique_ptr<GrammarCompiler> compiler;
};

std::vector<uint32_t> WordsOf(GrammarMatcher& matcher) {
  const MaskRow row = matcher.Mask();
  return {row.words().begin(), row.words().end()};
}

const char* const kRecords = R"({"type":"array","maxItems":200,"items":{"type":"object",
  "properties":{"a":{"type":"string","maxLength":2000},"b":{"type":"string","maxLength":2000},
  "c":{"type":"string","maxLength":2000},"d":{"type":"string","maxLength":2000},
  "e":{"type":"string","maxLength":2000}},"required":["a","b","c","d","e"],
  "additionalProperties":false}})";

// A text of the schema above, of about `size` bytes, which differs by seed.
std::string Records(uint32_t seed, size_t size) {
  std::mt19937 random(seed);
  std::string text = "[";
  while (text.size() < size) {
    text += text.size() == 1 ? "{" : ",{";
    for (const char* name : {"\"a\":\"", ",\"b\":\"", ",\"c\":\"", ",\"d\":\"", ",\"e\":\""}) {
      text +=
          name +
          std::string(1 + random() % (60 * (seed + 2)), static_cast<char>('a' + random() % 26)) +
          "\"";
    }
    text += "}";
  }
  return text + "]";
}

// Texts of the letters a to l.
std::vector<std::string> RandomPieces(int count) {
  std::vector<std::string> pieces;
  std::mt19937 random(5);
  for (int i = 0; i < count; ++i) {
    std::string piece;
    for (size_t size = 2 + random() % 14; piece.size() < size;) {
      piece.push_back(static_cast<char>('a' + random() % 12));
    }
    pieces.push_back(piece);
  }
  return pieces;
}

TEST_SUITE("unit") {
  TEST_CASE("32 texts of an ordinary schema ended after 12 to 18 kB: they shared their states") {
    Fixture fixture;
    const auto compiled = fixture.Compile(GrammarKind::kJsonSchema, kRecords);
    constexpr size_t kTextBytes = 40000;
    std::vector<std::string> texts;
    std::vector<std::unique_ptr<GrammarMatcher>> matchers;
    for (uint32_t seed = 0; seed < 32; ++seed) {
      texts.push_back(Records(seed, kTextBytes));
      matchers.push_back(compiled->NewMatcher({.stop_ids = {kEos}}));
    }
    // Each time that the texts move to a new automaton, half of a limit was used.
    int num_moves = 0;
    size_t last_bytes = 0;
    for (size_t at = 0; at < kTextBytes; ++at) {
      num_moves += compiled->size_bytes() < last_bytes ? 1 : 0;
      last_bytes = compiled->size_bytes();
      for (size_t i = 0; i < texts.size(); ++i) {
        CAPTURE(i);
        CAPTURE(at);
        REQUIRE(matchers[i]->Accept(static_cast<uint8_t>(texts[i][at])));
      }
    }
    CHECK(num_moves >= 2);
    // The same text alone has the same masks.
    for (size_t i = 0; i < 3; ++i) {
      const auto alone = fixture.Matcher(GrammarKind::kJsonSchema, kRecords);
      for (size_t at = 0; at < kTextBytes; ++at) {
        REQUIRE(alone->Accept(static_cast<uint8_t>(texts[i][at])));
      }
      CHECK(WordsOf(*alone) == WordsOf(*matchers[i]));
    }
  }

  TEST_CASE("masks were thinned out and kept before the states ran out") {
    // Each text meets hundreds of thousands of states, and follows several automata.
    Fixture fixture;
    const char* const kEveryTextHasItsState = "root ::= (\"a\" | \"b\")* \"a\" [ab]{40}";
    const auto matcher = fixture.Matcher(GrammarKind::kEbnf, kEveryTextHasItsState);
    const auto fork = matcher->Fork();
    std::mt19937 random(3);
    std::string text;
    for (int step = 0; step < 300000; ++step) {
      text.push_back(random() % 2 == 0 ? 'a' : 'b');
      REQUIRE(matcher->Accept(text.back()));
      if (step % 997 != 0) continue;
      const MaskRow row = matcher->Mask();
      REQUIRE(matcher->fault() == MatcherFault::kNone);
      const bool may_end = text.size() > 40 && text[text.size() - 41] == 'a';
      REQUIRE(row.Allows('a'));
      REQUIRE(row.Allows('b'));
      REQUIRE(!row.Allows('c'));
      REQUIRE(row.Allows(kEos) == may_end);
    }
    // A rollback past the states that moved along follows the tokens again.
    for (const size_t back : {size_t{64}, size_t{3}, size_t{70000}, size_t{200000}}) {
      matcher->Rollback(back);
      text.resize(text.size() - back);
      REQUIRE(matcher->num_accepted() == text.size());
      const bool may_end = text.size() > 40 && text[text.size() - 41] == 'a';
      CHECK(matcher->Mask().Allows(kEos) == may_end);
    }
    for (const char byte : text) REQUIRE(fork->Accept(byte));
    CHECK(WordsOf(*fork) == WordsOf(*matcher));
    matcher->Rollback(text.size());
    CHECK(WordsOf(*matcher) ==
          WordsOf(*fixture.Matcher(GrammarKind::kEbnf, kEveryTextHasItsState)));
  }

  TEST_CASE("one mask took 233 ms: past the bound of its work there is a fault, and no row") {
    // Every text has its own state.
    Fixture fixture(RandomPieces(60000));
    std::string text = "(.|\n)*(";
    for (char letter = 'a'; letter <= 'l'; ++letter) {
      text += (letter == 'a' ? "" : "|") + std::string(1, letter) + "(.|\n){" +
              std::to_string(60 + letter - 'a') + "}";
    }
    const auto compiled =
        fixture.compiler->CompileAnew({.kind = GrammarKind::kRegex, .text = text + ")x"});
    CHECK(compiled.status().code() == absl::StatusCode::kResourceExhausted);
    MESSAGE(compiled.status().ToString());
  }

  TEST_CASE("a constraint was opened, and its masks grew with its text until one met the bound") {
    Fixture fixture(RandomPieces(20000));
    for (
        const char* text :
        {R"(root ::= "a" | ([^a] (root | root* [^a]? "e" root | "}" | [d-f]{3,} | "ab"*)? | root?))",
         R"(root ::= r4 [^"\\] | r4
r1 ::= r4
r3 ::= r1 | "}"
r4 ::= [^"\\]{2} | r3{4})"}) {
      const auto compiled =
          fixture.compiler->CompileAnew({.kind = GrammarKind::kEbnf, .text = text});
      CHECK_MESSAGE(compiled.status().code() == absl::StatusCode::kResourceExhausted,
                    compiled.status().ToString());
    }
  }
}

}  // namespace
}  // namespace specd::grammar
