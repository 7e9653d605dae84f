// The xgrammar backend with its library; oracle.xgrammar (tests/oracle) runs these.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "speculative/grammar/xgrammar_backend.h"
#include "speculative/grammar/xgrammar_install.h"
#include "tests/support/xgrammar_cases.h"
#include "tests/support/xgrammar_fixture.h"

namespace specd::grammar {
namespace {

bool AcceptsBytes(const CompiledGrammar& grammar, std::string_view text) {
  const std::unique_ptr<GrammarMatcher> matcher = grammar.NewMatcher({});
  for (const char c : text) {
    if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
  }
  return matcher->IsAccepting();
}

}  // namespace

TEST_SUITE("oracle") {
  TEST_CASE("xgrammar's JSON has whitespace where the mode says so") {
    const auto flexible = MatcherOf(GrammarKind::kJsonObject, "");
    REQUIRE(AcceptText(*flexible, "{"));
    CHECK(Allowed(*flexible).contains(Id("\n")));
    for (uint32_t i = 0; i < kWhitespaceMax; ++i) REQUIRE(flexible->Accept(Id(" ")));
    CHECK(!flexible->Accept(Id(" ")));
    // The library puts spaces of its own into values without a schema.
    const auto compact = Compile(GrammarKind::kJsonSchema, "{}", Whitespace::kCompact);
    for (const char* text : {R"([1,12,[null,true],{"a":1,"b":{"ab":null,"a":1}}])", "[]", "{}"}) {
      const auto matcher = compact->NewMatcher({.stop_ids = {kEos}});
      CAPTURE(text);
      CHECK(AcceptText(*matcher, text));
      CHECK(matcher->IsAccepting());
    }
    std::mt19937 random(3);
    for (int walk = 0; walk < 200; ++walk) {
      const auto matcher = compact->NewMatcher({.stop_ids = {kEos}});
      bool in_string = false;
      for (int place = 0; place < 20 && !matcher->IsTerminated(); ++place) {
        const std::set<TokenId> allowed = Allowed(*matcher);
        if (!in_string) {
          for (const char* space : {" ", "\n", ", "}) CHECK(!allowed.contains(Id(space)));
        }
        const TokenId id = Draw(allowed, random);
        REQUIRE(matcher->Accept(id));
        if (id == kEos) break;
        // Walks end at an escape: it needs a reader of strings to follow.
        if (kTokens[static_cast<size_t>(id)] == "\\") break;
        for (const char c : kTokens[static_cast<size_t>(id)]) in_string ^= c == '"';
      }
    }
  }

  TEST_CASE("a schema means to xgrammar what the standard says, and not its strict mode") {
    const auto matcher = MatcherOf(GrammarKind::kJsonSchema,
                                   R"({"type":"object","properties":{"a":{"type":"integer"}},)"
                                   R"("required":["a"]})");
    CHECK(AcceptText(*matcher, R"({"a":12,"b":true})"));
    CHECK(matcher->IsFinished());
  }

  TEST_CASE("the text of a structural tag is free until a trigger") {
    const auto matcher = MatcherOf(GrammarKind::kStructuralTag, kTags);
    REQUIRE(AcceptText(*matcher, "ab<"));
    CHECK(matcher->IsAccepting());
    REQUIRE(AcceptText(*matcher, "<f"));
    CHECK(!matcher->IsAccepting());
    CHECK(!matcher->Accept(Id("b")));
    CHECK(matcher->ForcedText().starts_with("=a>{"));
    const auto whole = MatcherOf(GrammarKind::kStructuralTag, kTags);
    REQUIRE(AcceptText(*whole, R"(ab<f=a>{"a": [1, {}]})"));
    CHECK(!whole->IsAccepting());
    REQUIRE(AcceptText(*whole, "</f>"));
    CHECK(whole->IsAccepting());
    CHECK(!whole->IsFinished());
    CHECK(AcceptText(*whole, "ab"));
  }

  // Bug: "a\nb" was written as \x0a and b, which the library reads as U+00AB.
  TEST_CASE("a control character of a choice before a hexadecimal digit is itself") {
    const auto grammar =
        Library()
            .bytes
            ->Compile({.kind = GrammarKind::kChoice, .text = R"(["a\nb","\u001f0","\u007fF"])"})
            .value();
    for (const char* text : {"a\nb",
                             "\x1F"
                             "0",
                             "\x7F"
                             "F"}) {
      CAPTURE(text);
      CHECK(AcceptsBytes(*grammar, text));
    }
    CHECK(!AcceptsBytes(*grammar, "a\u00ab"));
  }

  TEST_CASE("a tree of formats is followed by xgrammar") {
    const auto matcher =
        MatcherOf(GrammarKind::kStructuralTag,
                  R"({"type":"structural_tag","format":{"type":"sequence","elements":[)"
                  R"({"type":"const_string","value":"ab"},{"type":"tag","begin":"<f=a>","content":)"
                  R"({"type":"json_schema","json_schema":{"type":"object","properties":{"a":{}}}},)"
                  R"("end":"</f>"},{"type":"or","elements":[{"type":"regex","pattern":"1+"},)"
                  R"({"type":"grammar","grammar":"root ::= \"c\""}]}]}})");
    // "b" is an additional property: the strict mode of the library would forbid it.
    REQUIRE(AcceptText(*matcher, R"(ab<f=a>{"a":1,"b":[true]}</f>)"));
    CHECK(Allowed(*matcher) == Ids({"1", "c"}));
    REQUIRE(AcceptText(*matcher, "c"));
    CHECK(matcher->IsFinished());
  }

  TEST_CASE("the warnings say what xgrammar 0.2.8 lets pass") {
    for (const WeakSchema& weak : kWeakSchemas) {
      CAPTURE(weak.schema);
      auto grammar =
          Library().bytes->Compile({.kind = GrammarKind::kJsonSchema, .text = weak.schema});
      REQUIRE(grammar.ok());
      CHECK(!(*grammar)->warnings().empty());
      CHECK(AcceptsBytes(**grammar, weak.violation));
    }
    for (const StrongSchema& strong : kStrongSchemas) {
      CAPTURE(strong.schema);
      auto grammar =
          Library().bytes->Compile({.kind = GrammarKind::kJsonSchema, .text = strong.schema});
      REQUIRE(grammar.ok());
      CHECK((*grammar)->warnings().empty());
      CHECK(AcceptsBytes(**grammar, strong.value));
      CHECK(!AcceptsBytes(**grammar, strong.violation));
    }
    const auto tags = Library().bytes->Compile(
        {.kind = GrammarKind::kStructuralTag,
         .text = R"({"triggers":["<"],"tags":[{"begin":"<","schema":{"not":{}},"end":">"}]})"});
    REQUIRE(tags.ok());
    REQUIRE((*tags)->warnings().size() == 1);
    CHECK((*tags)->warnings()[0] == "/tags/0/schema/not: is ignored");
  }

  TEST_CASE("an error of xgrammar is a status of the right kind") {
    constexpr auto kWrong = absl::StatusCode::kInvalidArgument;
    constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;
    constexpr auto kTooLarge = absl::StatusCode::kResourceExhausted;
    struct Row {
      GrammarKind kind;
      std::string text;
      absl::StatusCode code;
    };
    std::string deep = "true";
    for (int i = 0; i < 300; ++i) deep = R"({"items":)" + deep + "}";
    const Row rows[] = {
        {GrammarKind::kNone, "", kWrong},
        {static_cast<GrammarKind>(7), "", kWrong},
        {GrammarKind::kRegex, "a(", kWrong},
        {GrammarKind::kRegex, "a{3,2}", kWrong},
        {GrammarKind::kRegex, "[z-a]", kWrong},
        {GrammarKind::kRegex, "(?=a)b", kUnsupported},
        {GrammarKind::kRegex, "a\\bb", kUnsupported},
        {GrammarKind::kRegex, std::string(300, '(') + std::string(300, ')'), kTooLarge},
        {GrammarKind::kRegex, std::string(kGrammarTextBytesMax + 1, 'a'), kTooLarge},
        {GrammarKind::kEbnf, "root ::= nowhere", kWrong},
        {GrammarKind::kEbnf, "start ::= \"a\"", kWrong},
        {GrammarKind::kEbnf, "", kWrong},
        {GrammarKind::kChoice, "[]", kWrong},
        {GrammarKind::kJsonObject, "{}", kWrong},
        {GrammarKind::kJsonSchema, "", kWrong},
        {GrammarKind::kJsonSchema, "{\"type\":", kWrong},
        {GrammarKind::kJsonSchema, R"({"type":"nothing"})", kWrong},
        {GrammarKind::kJsonSchema, R"({"$ref":"#/nowhere"})", kWrong},
        {GrammarKind::kJsonSchema, R"({"enum":[]})", kWrong},
        {GrammarKind::kJsonSchema, deep, kTooLarge},
        {GrammarKind::kStructuralTag, "[]", kWrong},
        {GrammarKind::kStructuralTag,
         R"({"triggers":["<g"],"tags":[{"begin":"<f","schema":{},"end":"x"}]})", kWrong},
    };
    for (const Row& row : rows) {
      CAPTURE(row.text.substr(0, 80));
      const absl::Status status =
          Library().backend->Compile({.kind = row.kind, .text = row.text}).status();
      CAPTURE(std::string(status.message()));
      CHECK(status.code() == row.code);
      // The library's clock and paths stay out.
      CHECK(std::string(status.message()).find("/project/") == std::string::npos);
    }
    // The backend goes on.
    CHECK(AcceptText(*MatcherOf(GrammarKind::kRegex, "a"), "a"));
  }

  // The library followed such a chain off the end of an ordinary stack, and the process ended.
  TEST_CASE("a long chain of references is no end of the process") {
    std::string schema = R"({"$ref":"#/$defs/0","$defs":{)";
    for (int i = 0; i < 14000; ++i) {
      schema += fmt::format(R"("{}":{{"$ref":"#/$defs/{}"}},)", i, i + 1);
    }
    schema += R"("14000":{"type":"integer"}}})";
    auto grammar = Library().bytes->Compile({.kind = GrammarKind::kJsonSchema, .text = schema});
    REQUIRE(grammar.ok());
    CHECK(AcceptsBytes(**grammar, "12"));
    CHECK(!AcceptsBytes(**grammar, "null"));
  }

  TEST_CASE("xgrammar's grammars and matchers outlive its backend") {
    std::unique_ptr<GrammarMatcher> matcher;
    {
      Vocabulary::Builder builder;
      builder.Set(0, "a", {});
      const Vocabulary vocabulary = std::move(builder).Build();
      auto backend = LoadXgrammar({.vocabulary = &vocabulary, .vocab_size = 1}).value();
      matcher =
          backend->Compile({.kind = GrammarKind::kRegex, .text = "aa"}).value()->NewMatcher({});
    }
    CHECK(matcher->Accept(0));
    CHECK(matcher->Fork()->Accept(0));
    CHECK(!matcher->IsAccepting());
  }

  TEST_CASE("threads share one backend of xgrammar") {
    std::vector<std::thread> threads;
    std::vector<int> num_wrong(4, 0);
    for (size_t thread = 0; thread < num_wrong.size(); ++thread) {
      threads.emplace_back([&num_wrong, thread] {
        for (int round = 0; round < 25; ++round) {
          const std::string text = fmt::format(R"(["a{}","b"])", (round + thread) % 10);
          auto grammar =
              Library().bytes->Compile({.kind = GrammarKind::kChoice, .text = text}).value();
          const bool is_right = AcceptsBytes(*grammar, fmt::format("a{}", (round + thread) % 10)) &&
                                !AcceptsBytes(*grammar, "a") && AcceptsBytes(*grammar, "b");
          num_wrong[thread] += is_right ? 0 : 1;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(num_wrong == std::vector<int>(4, 0));
  }

  TEST_CASE("xgrammar leaves the process's handler of faults alone") {
    const bool is_same =
        Library().fault_handler_after.sa_handler == Library().fault_handler_before.sa_handler;
    CHECK(is_same);
  }

  TEST_CASE("a second installation of xgrammar in one process is refused") {
    CHECK(Library().backend != nullptr);
    const std::string other = std::string(std::getenv(kXgrammarDirVariable)) + "/.";
    Vocabulary::Builder builder;
    builder.Set(0, "a", {});
    const Vocabulary vocabulary = std::move(builder).Build();
    const auto second =
        LoadXgrammar({.directory = other, .vocabulary = &vocabulary, .vocab_size = 1});
    CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(!LoadXgrammar({.vocabulary = &vocabulary, .vocab_size = 0}).ok());
  }
}

}  // namespace specd::grammar
