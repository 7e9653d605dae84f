#include "speculative/grammar/matchers/state_matcher.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/grammar/front_ends/ebnf.h"
#include "tests/support/grammar_reference.h"

namespace specd::grammar {
namespace {

constexpr TokenId kEos = 0;
constexpr TokenId kStop = 1;

// Pieces of JSON, numbers and letters, some with several spellings; specials and holes between
// them.
Vocabulary MakeVocabulary() {
  Vocabulary::Builder builder;
  builder.Set(kEos, "</s>", {.added = true, .special = true});
  builder.Set(kStop, "b", {});  // a stop id that has a text, too
  const std::string pieces[] = {"a",    "b",        "c",        "ab",   "abc", "ba", "{",
                                "}",    "\"",       ":",        ",",    " ",   "\n", "1",
                                "12",   "\"a\":",   "ac",       "cab",  "bb",  "aa", "\xC3",
                                "\xA9", "\xC3\xA9", "\xE2\x82", "<pad>"};
  TokenId id = 2;
  for (const std::string& piece : pieces) {
    if (id % 7 == 0) ++id;  // a hole
    builder.Set(id++, piece, {.special = piece == "<pad>"});
  }
  builder.Set(id++, "ab", {});  // a second id for the same bytes
  return std::move(builder).Build();
}

constexpr int32_t kVocabSize = 70;  // more columns than tokens, and no multiple of 32

class Fixture {
 public:
  Fixture() : vocabulary_(MakeVocabulary()) {
    compiler_ = std::make_unique<GrammarCompiler>(
        GrammarCompilerOptions{.vocabulary = &vocabulary_, .vocab_size = kVocabSize});
  }
  std::unique_ptr<GrammarMatcher> Matcher(GrammarKind kind, const std::string& text,
                                          std::vector<TokenId> stops = {kEos}) {
    const auto compiled = compiler_->CompileAnew({.kind = kind, .text = text});
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().ToString());
    return (*compiled)->NewMatcher({.stop_ids = std::move(stops)});
  }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  GrammarCompiler& compiler() { return *compiler_; }

 private:
  Vocabulary vocabulary_;
  std::unique_ptr<GrammarCompiler> compiler_;
};

const char* const kGrammars[] = {
    "root ::= [a-c]+",
    "root ::= \"a\" root \"b\" | \"c\"",
    "root ::= root \"ab\" | \"a\" | \"\"",
    "root ::= \"{\" (pair (\",\" pair)*)? \"}\"\npair ::= \"\\\"\" [a-c]{1,3} \"\\\":\" [12]+",
    "root ::= [^b]* \"b\" .",
    "root ::= e\ne ::= e e | \"1\" | \"(\" e \")\"",
    "root ::= \"abc\" | \"ab\" | \"a\"",
    "root ::= (\"a\" | \"b\"){2,5} \"\\u00e9\"?",
};

// Constraints of the other kinds, each with a grammar of the same texts, written from the
// standards.
struct KindCase {
  GrammarKind kind;
  const char* text;
  const char* grammar;
};
const KindCase kOtherKinds[] = {
    {GrammarKind::kJsonSchema,
     R"({"type":"object","properties":{"a":{"enum":[1,12,"ab"]},"b":{"const":{"a":1}}},)"
     R"("required":["a"],"additionalProperties":false})",
     R"g(root ::= "{" s "\"a\"" s ":" s a s ("," s "\"b\"" s ":" s b s)? "}"
a ::= "1" | "12" | "\"ab\""
b ::= "{" s "\"a\"" s ":" s "1" s "}"
s ::= [ \t\n\r]{0,64})g"},
    {GrammarKind::kJsonSchema,
     R"({"anyOf":[{"const":12},{"type":"object","properties":{"a":{"$ref":"#"}},)"
     R"("required":["a"],"additionalProperties":false}]})",
     R"g(root ::= "12" | "{" s "\"a\"" s ":" s root s "}"
s ::= [ \t\n\r]{0,64})g"},
    {GrammarKind::kJsonSchema, R"({"type":"integer","minimum":1,"maximum":212})",
     R"g(root ::= [1-9] [0-9]? | "1" [0-9] [0-9] | "20" [0-9] | "21" [0-2])g"},
    // Every "{" of the text begins the tag.
    {GrammarKind::kStructuralTag,
     R"({"type":"structural_tag","triggers":["{"],"structures":[)"
     R"({"begin":"{a","schema":{"enum":[1,"b"]},"end":"}"}]})",
     R"g(root ::= ([^{] | "{a" ("1" | "\"b\"") "}")*)g"},
};

// Walks under the constraint, and tries every id at every place.
void CheckBruteForce(Fixture& fixture, const KindCase& kind_case) {
  const Vocabulary& vocabulary = fixture.vocabulary();
  GrammarRules rules;
  const auto root = ParseEbnf(kind_case.grammar, {}, &rules);
  REQUIRE(root.ok());
  const RuleId rule = rules.AddRule("all");
  rules.Define(rule, *root);
  rules.SetRoot(rule);
  GrammarReference reference(rules);
  std::mt19937 random(7);
  for (int walk = 0; walk < 6; ++walk) {
    const auto matcher = fixture.Matcher(kind_case.kind, kind_case.text, {kEos, kStop});
    std::string text;
    for (int step = 0; step < 8; ++step) {
      CAPTURE(text);
      const MaskRow mask = matcher->Mask();
      REQUIRE(mask.words().size() == 3);
      std::vector<TokenId> allowed;
      for (TokenId id = 0; id < 96; ++id) {
        bool expected = false;
        if (id == kEos || id == kStop) {
          expected = reference.Accepts(text);
        } else if (id < kVocabSize && !vocabulary.Bytes(id).empty() && !vocabulary.IsSpecial(id)) {
          expected = reference.IsPrefix(text + std::string(vocabulary.Bytes(id)));
        }
        CAPTURE(id);
        REQUIRE(mask.Allows(id) == expected);
        const auto fork = matcher->Fork();
        REQUIRE(fork->Accept(id) == expected);
        if (expected && id != kEos && id != kStop) allowed.push_back(id);
      }
      REQUIRE(matcher->IsAccepting() == reference.Accepts(text));
      if (allowed.empty()) break;
      const TokenId id = allowed[random() % allowed.size()];
      REQUIRE(matcher->Accept(id));
      text += vocabulary.Bytes(id);
    }
  }
}

TEST_SUITE("unit") {
  TEST_CASE("masks equal brute force: every id on every reachable text, against the reference") {
    Fixture fixture;
    for (const char* grammar : kGrammars) {
      CAPTURE(grammar);
      CheckBruteForce(fixture, {GrammarKind::kEbnf, grammar, grammar});
    }
  }

  TEST_CASE("masks of a schema and of tags equal brute force, against a grammar of their texts") {
    Fixture fixture;
    for (const KindCase& kind_case : kOtherKinds) {
      CAPTURE(std::string(kind_case.text));
      CheckBruteForce(fixture, kind_case);
    }
  }

  TEST_CASE("random accepts, rollbacks and forks equal a replay from the start") {
    Fixture fixture;
    for (const char* grammar : kGrammars) {
      CAPTURE(grammar);
      std::mt19937 random(11);
      struct Walker {
        std::unique_ptr<GrammarMatcher> matcher;
        std::vector<TokenId> history;
      };
      std::vector<Walker> walkers;
      walkers.push_back({fixture.Matcher(GrammarKind::kEbnf, grammar), {}});
      for (int step = 0; step < 300; ++step) {
        Walker& walker = walkers[random() % walkers.size()];
        const auto id = static_cast<TokenId>(random() % kVocabSize);
        switch (random() % 4) {
          case 0: {
            const size_t count = random() % (walker.history.size() + 1);
            walker.matcher->Rollback(count);
            walker.history.resize(walker.history.size() - count);
            break;
          }
          case 1:
            if (walkers.size() < 5) {
              walkers.push_back({walker.matcher->Fork(), walker.history});
              break;
            }
            [[fallthrough]];
          default:
            if (walker.matcher->Accept(id)) walker.history.push_back(id);
        }
        for (const Walker& each : walkers) {
          const auto replay = fixture.Matcher(GrammarKind::kEbnf, grammar);
          for (const TokenId token : each.history) REQUIRE(replay->Accept(token));
          const MaskRow a = each.matcher->Mask();
          const MaskRow b = replay->Mask();
          REQUIRE(std::vector(a.words().begin(), a.words().end()) ==
                  std::vector(b.words().begin(), b.words().end()));
          REQUIRE(each.matcher->num_accepted() == each.history.size());
          REQUIRE(each.matcher->IsTerminated() == replay->IsTerminated());
        }
      }
    }
  }

  TEST_CASE("openvino.genai 4081: past the end of the text there is a mask, and it stops") {
    Fixture fixture;
    const auto matcher = fixture.Matcher(GrammarKind::kRegex, "a?");
    REQUIRE(matcher->Accept(kEos));
    CHECK(matcher->IsTerminated());
    const MaskRow mask = matcher->Mask();
    for (TokenId id = 0; id < 96; ++id) CHECK(mask.Allows(id) == (id == kEos));
    CHECK(!matcher->Accept(2));
    CHECK(matcher->Accept(kEos));  // a draft may repeat it
    matcher->Rollback(2);
    CHECK(!matcher->IsTerminated());
    CHECK(matcher->Accept(2));
  }

  TEST_CASE("where a text may not end, sequences with other stop ids share the row") {
    Fixture fixture;
    const auto compiled =
        fixture.compiler().CompileAnew({.kind = GrammarKind::kRegex, .text = "[ab]a"});
    REQUIRE(compiled.ok());
    const auto row_of = [&](std::vector<TokenId> stops, std::vector<TokenId> history) {
      const auto matcher = (*compiled)->NewMatcher({.stop_ids = std::move(stops)});
      for (const TokenId id : history) REQUIRE(matcher->Accept(id));
      return matcher->Mask();
    };
    const MaskRow first = row_of({kEos}, {});
    CHECK(row_of({kEos, 5}, {}).words().data() == first.words().data());
    CHECK(first.Allows(kStop));
    CHECK_FALSE(first.Allows(kEos));
    // A stop id that is a text here has no share in it.
    for (int repeat = 0; repeat < 2; ++repeat) {
      const MaskRow without = row_of({kEos, kStop}, {});
      CHECK_FALSE(without.Allows(kStop));
      CHECK(without.Allows(2));
    }
    CHECK(row_of({kEos}, {2, 2}).Allows(kEos));
    CHECK_FALSE(row_of({5}, {2, 2}).Allows(kEos));
  }

  TEST_CASE("the end: accepting, finished, and what is forced") {
    Fixture fixture;
    const auto matcher = fixture.Matcher(GrammarKind::kRegex, "abc|abca");
    CHECK(matcher->ForcedText() == "abc");
    REQUIRE(matcher->Accept(6));  // "abc"
    CHECK(matcher->IsAccepting());
    CHECK(!matcher->IsFinished());
    CHECK(matcher->ForcedText().empty());
    REQUIRE(matcher->Accept(2));
    CHECK(matcher->IsFinished());
    CHECK(!matcher->IsTerminated());
  }

  TEST_CASE("a mask allowed a prefix that no token completes: bytes were exact, tokens were not") {
    Vocabulary::Builder builder;
    builder.Set(0, "</s>", {.added = true, .special = true});
    builder.Set(1, "a", {});
    builder.Set(2, "x", {});
    builder.Set(3, "axyz", {});
    const Vocabulary vocabulary = std::move(builder).Build();
    GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = 4});
    const auto compile = [&](const char* pattern) {
      return compiler.CompileAnew({.kind = GrammarKind::kRegex, .text = pattern});
    };
    // No token spells b: no text is left.
    CHECK(compile("ab").status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(compile("[^ax]").status().code() == absl::StatusCode::kInvalidArgument);
    const auto allowed = [](GrammarMatcher& matcher) {
      std::vector<TokenId> ids;
      for (TokenId id = 0; id < 4; ++id) {
        if (matcher.Mask().Allows(id)) ids.push_back(id);
      }
      return ids;
    };
    const auto either = (*compile("ab|[bx]a"))->NewMatcher({.stop_ids = {0}});
    CHECK(allowed(*either) == std::vector<TokenId>{2});
    // After a only the end may follow: as a byte b might, and as a byte y, but no token has them.
    for (const char* pattern : {"a(bc)?", "a(yz)?"}) {
      CAPTURE(pattern);
      const auto matcher = (*compile(pattern))->NewMatcher({.stop_ids = {0}});
      CHECK(allowed(*matcher) == std::vector<TokenId>{1});
      REQUIRE(matcher->Accept(1));
      CHECK(allowed(*matcher) == std::vector<TokenId>{0});
      CHECK(matcher->IsFinished());
    }
    // A token that is a stop id is no text.
    const auto stopped = (*compile("ax?"))->NewMatcher({.stop_ids = {0, 2}});
    REQUIRE(stopped->Accept(1));
    CHECK(stopped->IsFinished());
    const auto going = (*compile("ax?"))->NewMatcher({.stop_ids = {0}});
    REQUIRE(going->Accept(1));
    CHECK(!going->IsFinished());
  }

  TEST_CASE("a constraint without a text is refused, and so is one past a limit") {
    Fixture fixture;
    const auto never = fixture.compiler().CompileAnew({.kind = GrammarKind::kRegex, .text = "a^b"});
    CHECK(never.status().code() == absl::StatusCode::kInvalidArgument);
    std::string text;
    for (int i = 0; i < 20000; ++i) text += "a{64}";
    const auto large = fixture.compiler().CompileAnew({.kind = GrammarKind::kRegex, .text = text});
    CHECK(large.status().code() == absl::StatusCode::kResourceExhausted);
  }

  TEST_CASE("the compiler compiles once, and keeps errors too") {
    const Vocabulary vocabulary = MakeVocabulary();
    GrammarCompiler compiler({.vocabulary = &vocabulary, .vocab_size = kVocabSize});
    const GrammarRequest request = {.kind = GrammarKind::kRegex, .text = "[ab]+"};
    const auto first = compiler.Compile(request);
    REQUIRE(first.ok());
    CHECK(*compiler.Compile(request) == *first);
    const GrammarRequest other = {.kind = GrammarKind::kRegex, .text = "[ab]*"};
    CHECK(*compiler.Compile(other) != *first);
    CHECK(!compiler.Compile({.kind = GrammarKind::kRegex, .text = "("}).ok());
    CHECK(!compiler.Compile({.kind = GrammarKind::kRegex, .text = "("}).ok());
  }
}

}  // namespace
}  // namespace specd::grammar
