// Masks that are built a slice at a time.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "detokenizer/vocabulary.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/grammar/front_ends/ebnf.h"
#include "speculative/grammar/front_ends/regex.h"
#include "speculative/grammar/masks/mask_builder.h"

namespace specd::grammar {
namespace {

constexpr TokenId kEos = 0;

// Every byte, and words of up to 60 letters.
Vocabulary MakeVocabulary() {
  Vocabulary::Builder builder;
  builder.Set(kEos, "</s>", {.added = true, .special = true});
  TokenId id = 1;
  for (int byte = 0; byte < 256; ++byte)
    builder.Set(id++, std::string(1, static_cast<char>(byte)), {});
  for (size_t length = 2; length <= 60; ++length) {
    std::string word;
    for (size_t i = 0; i < length; ++i) word.push_back("abcde"[(length * 7 + i * i) % 5]);
    builder.Set(id++, word, {});
    builder.Set(id++, "\"" + word, {});
  }
  return std::move(builder).Build();
}

constexpr int32_t kVocabSize = 400;

struct Case {
  GrammarKind kind;
  std::string text;
  std::string begin;  // away from the text that a compile follows, which takes low bytes
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {GrammarKind::kRegex, "(a|ab|abc|[b-e]){3,70}", "abcab"},
      {GrammarKind::kJsonSchema,
       R"({"anyOf":[{"const":""},{"type":"array","items":{"type":"string","maxLength":40}}]})",
       "[\"ab"},
      {GrammarKind::kJsonSchema, R"({"type":"object","properties":{"a":{"type":"string"}}})",
       "{\"a\":\""},
      {GrammarKind::kEbnf, "root ::= \"!\" | s\ns ::= [a-e] s* | \"\\\"\" s", "abcdeabcdeabcde"},
      {GrammarKind::kEbnf, "root ::= \"!\" | s\ns ::= s s | [a-e] | \"\\\"\"", "abcdeabcde"},
  };
  return cases;
}

std::unique_ptr<GrammarCompiler> Compiler(const Vocabulary& vocabulary) {
  return std::make_unique<GrammarCompiler>(
      GrammarCompilerOptions{.vocabulary = &vocabulary, .vocab_size = kVocabSize});
}

std::unique_ptr<GrammarMatcher> MatcherOf(GrammarCompiler& compiler, const Case& c) {
  const auto compiled = compiler.CompileAnew({.kind = c.kind, .text = c.text});
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().ToString());
  auto matcher = (*compiled)->NewMatcher({.stop_ids = {kEos}});
  REQUIRE(matcher->AcceptText(c.begin));
  return matcher;
}

std::vector<uint32_t> WordsOf(const MaskRow& row) {
  return {row.words().begin(), row.words().end()};
}

// The number of slices that the matcher's mask takes.
size_t CountSlices(GrammarMatcher* matcher, uint64_t units) {
  for (size_t count = 1;; ++count) {
    WorkSlice slice{.units = units};
    if (matcher->TryMask(&slice).has_value()) return count;
  }
}

TEST_SUITE("unit") {
  TEST_CASE("a mask that is built in slices is the mask of one go") {
    const Vocabulary vocabulary = MakeVocabulary();
    for (const Case& c : Cases()) {
      CAPTURE(c.text);
      const std::vector<uint32_t> expected = WordsOf(MatcherOf(*Compiler(vocabulary), c)->Mask());
      size_t slices_before = ~size_t{0};
      for (const uint64_t units : {uint64_t{1}, uint64_t{300}, BudgetLimits::kNone}) {
        const auto matcher = MatcherOf(*Compiler(vocabulary), c);
        const size_t num_slices = CountSlices(matcher.get(), units);
        CHECK(WordsOf(matcher->Mask()) == expected);
        CHECK(num_slices <= slices_before);
        if (units == 1) CHECK(num_slices > 1);
        if (units == BudgetLimits::kNone) CHECK(num_slices == 1);
        slices_before = num_slices;
      }
    }
  }

  // Bug: a row that was found on the way to a place lost what was done of that place's mask.
  TEST_CASE("a mask is done at last if each slice begins with the rows of earlier places") {
    const Vocabulary vocabulary = MakeVocabulary();
    for (const Case& c : Cases()) {
      CAPTURE(c.text);
      const auto matcher = MatcherOf(*Compiler(vocabulary), c);
      (void)matcher->Mask();
      for (int num_slices = 0;; ++num_slices) {
        REQUIRE(num_slices < 10'000);
        WorkSlice slice{.units = 1};
        REQUIRE(matcher->TryMask(&slice).has_value());
        REQUIRE(matcher->AcceptText("abc"));
        if (matcher->TryMask(&slice).has_value()) break;
        matcher->Rollback(1);
      }
    }
  }

  // Bug: a walk along known states cost nothing, so the 65 masks of a draft were one slice.
  TEST_CASE("a mask whose states are all known is built in slices too") {
    const Vocabulary vocabulary = MakeVocabulary();
    const MaskBuilder builder(TokenTrie::Build(vocabulary, kVocabSize));
    GrammarRules rules;
    const RuleId root = rules.AddRule("root");
    rules.Define(root, *ParseRegex("(a|ab|abc|[b-e]){3,70}", {}, &rules));
    rules.SetRoot(root);
    const Network network = *Network::Build(rules);
    LazyAutomaton automaton(&network);
    MaskWords words;
    for (const bool are_known : {false, true}) {
      CAPTURE(are_known);
      MaskWork work(&builder, &automaton, automaton.start());
      size_t num_slices = 0;
      for (bool is_done = false; !is_done; ++num_slices) {
        WorkSlice slice{.units = 16};
        is_done = work.Advance(&slice);
      }
      REQUIRE(work.limit() == LazyAutomaton::kDead);
      CHECK(num_slices > 4);
      const MaskWords found = work.TakeWords();
      if (are_known) CHECK(found == words);
      words = found;
    }
  }

  // Bug: the look at a family went on through all 20,000 second characters, and the mask was lost
  // for them, though no token has any.
  TEST_CASE("a family of which few tokens are there takes a part of the mask's work alone") {
    const Vocabulary vocabulary = MakeVocabulary();
    const MaskBuilder builder(TokenTrie::Build(vocabulary, kVocabSize));
    std::string ebnf = "root ::= [^\\n]* | (\"\\u4E00\"";
    for (int i = 1; i < 20'000; ++i) {
      ebnf += fmt::format(" | \"\\u{:04X}\\u{:04X}\"", 0x4E00 + i, 0x4E00 + i / 2);
    }
    ebnf += ") \"\\n\"";
    GrammarRules rules;
    const auto parsed = ParseEbnf(ebnf, {}, &rules);
    REQUIRE_MESSAGE(parsed.ok(), parsed.status().ToString());
    const RuleId root = rules.AddRule("all");
    rules.Define(root, *parsed);
    rules.SetRoot(root);
    const Network network = *Network::Build(rules);
    LazyAutomaton automaton(&network);
    MaskWork work(&builder, &automaton, automaton.start());
    WorkSlice slice{.units = BudgetLimits::kNone};
    REQUIRE(work.Advance(&slice));
    REQUIRE(work.limit() == LazyAutomaton::kDead);
    const MaskWords words = work.TakeWords();
    for (TokenId id = 1; id < vocabulary.size(); ++id) {
      const bool may_come =
          LazyAutomaton::IsAlive(automaton.StepText(automaton.start(), vocabulary.Bytes(id)));
      CAPTURE(id);
      CHECK(((words[static_cast<size_t>(id) / 32] >> (id % 32)) & 1) == may_come);
    }
  }

  TEST_CASE("matchers at one state build its mask together") {
    const Vocabulary vocabulary = MakeVocabulary();
    for (const Case& c : Cases()) {
      CAPTURE(c.text);
      const auto alone = MatcherOf(*Compiler(vocabulary), c);
      const size_t num_alone = CountSlices(alone.get(), 1);
      const auto compiler = Compiler(vocabulary);
      const auto compiled = *compiler->CompileAnew({.kind = c.kind, .text = c.text});
      std::vector<std::unique_ptr<GrammarMatcher>> matchers;
      for (int i = 0; i < 3; ++i) {
        matchers.push_back(compiled->NewMatcher({.stop_ids = {kEos}}));
        REQUIRE(matchers.back()->AcceptText(c.begin));
      }
      size_t num_together = 0;
      for (bool is_done = false; !is_done;) {
        WorkSlice slice{.units = 1};
        is_done = matchers[num_together++ % 3]->TryMask(&slice).has_value();
      }
      CHECK(num_together == num_alone);
      for (const auto& matcher : matchers)
        CHECK(WordsOf(matcher->Mask()) == WordsOf(alone->Mask()));
    }
  }

  TEST_CASE(
      "a matcher that goes elsewhere before its mask is done gets the mask of the new place") {
    const Vocabulary vocabulary = MakeVocabulary();
    for (const Case& c : Cases()) {
      CAPTURE(c.text);
      const auto compiler = Compiler(vocabulary);
      const auto matcher = MatcherOf(*compiler, c);
      WorkSlice slice{.units = 1};
      REQUIRE_FALSE(matcher->TryMask(&slice).has_value());
      REQUIRE(matcher->AcceptText("abc"));
      const auto other = MatcherOf(*Compiler(vocabulary), c);
      REQUIRE(other->AcceptText("abc"));
      CHECK(WordsOf(matcher->Mask()) == WordsOf(other->Mask()));
      matcher->Rollback(1);
      other->Rollback(1);
      CHECK(WordsOf(matcher->Mask()) == WordsOf(other->Mask()));
    }
  }
}

}  // namespace
}  // namespace specd::grammar
