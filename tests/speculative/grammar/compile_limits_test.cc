// A small text cannot ask for unbounded work (found by a reader of the grammar engine).
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/grammar/matchers/state_matcher.h"
#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

Vocabulary AllBytes() {
  Vocabulary::Builder builder;
  for (TokenId id = 0; id < 256; ++id) builder.Set(id, std::string(1, static_cast<char>(id)), {});
  return std::move(builder).Build();
}

struct Fixture {
  Fixture() : vocabulary(AllBytes()) {
    compiler = std::make_unique<GrammarCompiler>(
        GrammarCompilerOptions{.vocabulary = &vocabulary, .vocab_size = 256});
  }
  absl::StatusCode CodeOf(GrammarKind kind, const std::string& text) const {
    return compiler->CompileAnew({.kind = kind, .text = text}).status().code();
  }
  Vocabulary vocabulary;
  std::unique_ptr<GrammarCompiler> compiler;
};

std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST_SUITE("unit") {
  TEST_CASE("a small text cannot compile for long: it is refused by name") {
    // Without a budget these take minutes.
    Fixture fixture;
    for (const auto& [kind, text] :
         {std::pair{GrammarKind::kRegex, Repeated("a?", 16000)},
          {GrammarKind::kEbnf, "root ::= " + Repeated("[a]? ", 16000)}}) {
      // Time or memory is used up first, as the machine may have it.
      const absl::StatusCode code = fixture.CodeOf(kind, text);
      CHECK((code == absl::StatusCode::kResourceExhausted ||
             code == absl::StatusCode::kDeadlineExceeded));
    }
    // Usual patterns are far from the bound.
    for (const char* text : {"(a?){200}", "[a-z]{0,20000}", "([a-z]+ ?){0,500}", "(a?){16000}",
                             "(a?){65536}", "((((a{1,99}){1,99}){1,99}){1,99})"}) {
      CAPTURE(text);
      CHECK(fixture.CodeOf(GrammarKind::kRegex, text) == absl::StatusCode::kOk);
    }
  }

  TEST_CASE("a budget of work holds for its thread and its life") {
    CHECK(Budget::Spend(1 << 30));
    {
      const Budget budget({.units = 10});
      CHECK(Budget::Spend(6));
      {
        const Budget inner({.units = 100});
        CHECK(Budget::Spend(50));
      }
      CHECK(!Budget::Spend(6));
      CHECK(!Budget::Spend(1));  // used up is used up
      CHECK(Budget::Refusal().message().find("10 steps") != std::string::npos);
      bool elsewhere = false;
      std::thread([&] { elsewhere = Budget::Spend(1 << 30); }).join();
      CHECK(elsewhere);
    }
    CHECK(Budget::Spend(1 << 30));
    CHECK(Budget::Refusal().ok());
  }

  TEST_CASE("a budget of memory counts the lists that live") {
    const absl::Status refusal = Budget::Run({.bytes = size_t{2} << 20}, [] {
      // One after another they are within the budget, and in an inner budget too.
      for (int i = 0; i < 8; ++i) {
        const Budget inner({.units = 1 << 30});
        const List<char> list(1 << 20);
        CHECK(list.size() == 1 << 20);
      }
      const List<char> one(1 << 20);
      CHECK_THROWS_AS(List<char>((1 << 20) + 1), BudgetSpent);
    });
    CHECK(refusal.message().find("compile_mib = 2 MiB") != std::string::npos);
  }

  TEST_CASE("a budget of time ends a loop that only allocates, and one of levels a recursion") {
    const absl::Status late = Budget::Run({.cpu_ms = 5}, [] {
      while (true) List<char>(64);
    });
    CHECK(late.message().find("compile_ms = 5 of CPU time") != std::string::npos);
    CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
    const Budget budget({.levels = 2});
    const Budget::Level one;
    CHECK(one.ok());
    {
      const Budget::Level two;
      CHECK(two.ok());
      const Budget::Level three;
      CHECK(!three.ok());
    }
    CHECK(Budget::Refusal().message().find("2 levels") != std::string::npos);
  }

  TEST_CASE("texts that begin in more ways than a state may have are refused, and end nothing") {
    // It was a check of ours that failed, and the process with it.
    Fixture fixture;
    std::string text = "root ::= r0";
    for (int i = 1; i < 5000; ++i) text += " | r" + std::to_string(i);
    for (int i = 0; i < 5000; ++i) {
      const std::string name = std::to_string(i);
      text += "\nr" + name + " ::= \"a" + name + "\" r" + name + "?";
    }
    CHECK(fixture.CodeOf(GrammarKind::kEbnf, text) == absl::StatusCode::kResourceExhausted);
  }

  TEST_CASE("a text of rules within rules compiles on any thread's stack") {
    Fixture fixture;
    std::string text;
    for (int rule = 0; rule < 40; ++rule) {
      text += (rule == 0 ? "root" : "r" + std::to_string(rule)) + " ::= " + Repeated("(", 200) +
              (rule == 39 ? "\"b\"" : "r" + std::to_string(rule + 1)) + Repeated(" \"a\")", 200) +
              "\n";
    }
    CHECK(fixture.CodeOf(GrammarKind::kEbnf, text) == absl::StatusCode::kOk);
  }

  TEST_CASE("one text cannot use up the states of a constraint for the next") {
    Fixture fixture;
    // Every text of a's and b's has a state of its own: each of the last letters matters.
    const auto compiled = fixture.compiler->CompileAnew(
        {.kind = GrammarKind::kEbnf, .text = "root ::= (\"a\" | \"b\")* \"a\" [ab]{40}"});
    REQUIRE(compiled.ok());
    uint32_t random = 1;
    size_t largest = 0;
    for (int text = 0; text < GridSize({.full = 60, .sanitized = 10}); ++text) {
      const auto matcher = (*compiled)->NewMatcher({.stop_ids = {}});
      for (int i = 0; i < 4000; ++i) {
        random = random * 1664525 + 1013904223;
        REQUIRE(matcher->Accept(random >> 31 != 0 ? 'a' : 'b'));
      }
      largest = std::max(largest, (*compiled)->size_bytes());
    }
    CHECK(largest < LazyAutomaton::kBytesMax);
  }

  TEST_CASE("stop sets live as long as their matchers") {
    Fixture fixture;
    const auto compiled =
        fixture.compiler->CompileAnew({.kind = GrammarKind::kRegex, .text = "a*"});
    REQUIRE(compiled.ok());
    // Two matchers with the same stops share rows; another set has rows of its own.
    const auto one = (*compiled)->NewMatcher({.stop_ids = {5, 7}});
    for (TokenId id = 0; id < 250; ++id) {
      for (TokenId other = 0; other < 40; ++other) {
        const auto matcher = (*compiled)->NewMatcher({.stop_ids = {id, other}});
        CHECK(matcher->Mask().Allows(id));
      }
    }
    const auto two = (*compiled)->NewMatcher({.stop_ids = {7, 5, 7}});
    CHECK(one->Mask().words().data() == two->Mask().words().data());
    CHECK(!one->Mask().Allows(6));
  }
}

}  // namespace
}  // namespace specd::grammar
