// The matchers of the xgrammar library; oracle.xgrammar (tests/oracle) runs them.
#include "speculative/grammar/xgrammar_matcher.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/xgrammar_fixture.h"

namespace specd::grammar {
namespace {

// The mask allows exactly the ids that a fork accepts, and a refused id changes nothing.
void CheckPlace(GrammarMatcher& matcher) {
  const std::set<TokenId> allowed = Allowed(matcher);
  const size_t num_accepted = matcher.num_accepted();
  for (TokenId id = -2; id < kVocabSize + 40; ++id) {
    CAPTURE(id);
    const std::unique_ptr<GrammarMatcher> fork = matcher.Fork();
    const bool is_accepted = fork->Accept(id);
    CHECK(is_accepted == allowed.contains(id));
    CHECK(fork->num_accepted() == num_accepted + (is_accepted ? 1 : 0));
    if (is_accepted) fork->Rollback(1);
    CHECK(Allowed(*fork) == allowed);
  }
  CHECK(Allowed(matcher) == allowed);
  CHECK(matcher.num_accepted() == num_accepted);
  // A stop id is allowed exactly where the text may end.
  CHECK(allowed.contains(kEos) == matcher.IsAccepting());
  const bool has_text =
      std::any_of(allowed.begin(), allowed.end(), [](TokenId id) { return id != kEos; });
  CHECK(matcher.IsFinished() == (matcher.IsAccepting() && !has_text));
  CHECK(!allowed.contains(kPad));
  CHECK(!allowed.contains(kHole));
}

struct Constraint {
  GrammarKind kind;
  const char* text;
  Whitespace whitespace = Whitespace::kFlexible;
};
constexpr Constraint kConstraints[] = {
    {GrammarKind::kRegex, "[ab]+c?(12|é)*"},
    {GrammarKind::kRegex, "[^a]{0,5}"},
    {GrammarKind::kEbnf, "root ::= \"a\" root \"b\" | \"c\" | \"\\xe9\" [^x]"},
    {GrammarKind::kEbnf, "root ::= root \"a\" | \"b\""},
    {GrammarKind::kChoice, R"(["abc","ab","a\"}","é1",", "])"},
    {GrammarKind::kJsonObject, ""},
    {GrammarKind::kJsonObject, "", Whitespace::kCompact},
    {GrammarKind::kJsonSchema,
     R"({"type":"object","properties":{"a":{"type":"array","items":{"enum":[1,"ab",null]}},)"
     R"("b":{"type":"boolean"}},"required":["a"]})"},
    {GrammarKind::kStructuralTag, kTags},
};

}  // namespace

TEST_SUITE("oracle") {
  TEST_CASE("xgrammar's masks are what its matcher accepts, at every place of random walks") {
    std::mt19937 random(20261123);
    for (const Constraint& constraint : kConstraints) {
      CAPTURE(constraint.text);
      const auto grammar = Compile(constraint.kind, constraint.text, constraint.whitespace);
      CHECK(grammar->size_bytes() > 0);
      for (int walk = 0; walk < 6; ++walk) {
        const auto matcher = grammar->NewMatcher({.stop_ids = {kEos}});
        for (int place = 0; place < 12; ++place) {
          CheckPlace(*matcher);
          const std::set<TokenId> allowed = Allowed(*matcher);
          if (allowed.empty()) break;
          REQUIRE(matcher->Accept(Draw(allowed, random)));
        }
      }
    }
  }

  TEST_CASE("a matcher of xgrammar that walks to and fro is where a fresh one is") {
    std::mt19937 random(7);
    for (const Constraint& constraint : kConstraints) {
      CAPTURE(constraint.text);
      const auto grammar = Compile(constraint.kind, constraint.text, constraint.whitespace);
      const MatcherOptions options = {.stop_ids = {kEos}};
      auto matcher = grammar->NewMatcher(options);
      std::vector<TokenId> history;
      for (int step = 0; step < 150; ++step) {
        const uint32_t choice = random() % 4;
        if (choice == 0 && !history.empty()) {
          const size_t num_tokens = random() % history.size() + 1;
          matcher->Rollback(num_tokens);
          history.resize(history.size() - num_tokens);
        } else if (choice == 1) {
          std::unique_ptr<GrammarMatcher> fork = matcher->Fork();
          for (const TokenId id : Allowed(*fork)) {
            if (fork->Accept(id)) break;
          }
          if (random() % 2 == 0) std::swap(matcher, fork);
          matcher->Rollback(matcher->num_accepted() - history.size());
        } else if (const std::set<TokenId> allowed = Allowed(*matcher); !allowed.empty()) {
          history.push_back(Draw(allowed, random));
          REQUIRE(matcher->Accept(history.back()));
        }
        const auto fresh = grammar->NewMatcher(options);
        for (const TokenId id : history) REQUIRE(fresh->Accept(id));
        REQUIRE(Allowed(*matcher) == Allowed(*fresh));
        REQUIRE(matcher->IsAccepting() == fresh->IsAccepting());
        REQUIRE(matcher->ForcedText() == fresh->ForcedText());
        REQUIRE(matcher->num_accepted() == history.size());
      }
    }
  }

  TEST_CASE("the masks of a choice are the continuations of its strings") {
    const std::vector<std::string> strings = {"abc", "ab", "a1", "é12", "\"}", "b\n\\", "{\"x"};
    const auto grammar =
        Compile(GrammarKind::kChoice, R"(["abc","ab","a1","é12","\"}","b\n\\","{\"x"])");
    const auto is_prefix = [&](const std::string& text) {
      return std::any_of(strings.begin(), strings.end(),
                         [&](const std::string& string) { return string.starts_with(text); });
    };
    // Every path through the tokens.
    std::vector<std::pair<std::string, std::unique_ptr<GrammarMatcher>>> open;
    open.emplace_back("", grammar->NewMatcher({.stop_ids = {kEos}}));
    size_t num_places = 0;
    while (!open.empty()) {
      const std::string text = std::move(open.back().first);
      const std::unique_ptr<GrammarMatcher> matcher = std::move(open.back().second);
      open.pop_back();
      CAPTURE(text);
      ++num_places;
      const bool is_whole = std::count(strings.begin(), strings.end(), text) > 0;
      std::set<TokenId> expected;
      if (is_whole) expected.insert(kEos);
      for (size_t i = 0; i < kTokens.size(); ++i) {
        const auto id = static_cast<TokenId>(i);
        if (!is_prefix(text + kTokens[i])) continue;
        expected.insert(id);
        open.emplace_back(text + kTokens[i], matcher->Fork());
        CHECK(open.back().second->Accept(id));
      }
      CHECK(Allowed(*matcher) == expected);
      CHECK(matcher->IsAccepting() == is_whole);
      CHECK(matcher->IsFinished() == (expected == std::set<TokenId>{kEos}));
      // The prefix that all continuations share: none if the text may end here.
      std::string forced;
      if (!is_whole) {
        for (const std::string& string : strings) {
          if (!string.starts_with(text)) continue;
          const std::string rest = string.substr(text.size());
          if (forced.empty()) forced = rest;
          const auto [end, _] =
              std::mismatch(forced.begin(), forced.end(), rest.begin(), rest.end());
          forced.erase(end, forced.end());
          if (forced.empty()) break;
        }
      }
      CHECK(forced.starts_with(matcher->ForcedText()));
      if (!forced.empty() && static_cast<uint8_t>(forced[0]) < 0x80) {
        CHECK(matcher->ForcedText().substr(0, 1) == forced.substr(0, 1));
      }
    }
    CHECK(num_places > strings.size());
  }

  TEST_CASE("a terminated matcher of xgrammar gives the stop ids, and rolls back") {
    const auto matcher = MatcherOf(GrammarKind::kRegex, "a+b", {kEos, kStopX, -1, kVocabSize});
    CHECK(!matcher->Accept(kEos));
    CHECK(!matcher->IsTerminated());
    REQUIRE(AcceptText(*matcher, "aab"));
    CHECK(matcher->IsFinished());
    CHECK(Allowed(*matcher) == std::set<TokenId>{kStopX, kEos});
    REQUIRE(matcher->Accept(kStopX));
    CHECK(matcher->IsTerminated());
    CHECK(Allowed(*matcher) == std::set<TokenId>{kStopX, kEos});
    CHECK(!matcher->Accept(Id("a")));
    CHECK(matcher->ForcedText().empty());
    REQUIRE(matcher->Accept(kEos));
    const size_t num_accepted = matcher->num_accepted();
    const auto fork = matcher->Fork();
    CHECK(fork->IsTerminated());
    // Over both stop ids and one id of text.
    matcher->Rollback(3);
    CHECK(matcher->num_accepted() == num_accepted - 3);
    CHECK(!matcher->IsTerminated());
    CHECK(Allowed(*matcher) == Ids({"a", "b", "ab"}));
    CHECK(fork->IsTerminated());
  }

  TEST_CASE("text accepted by xgrammar counts as one id and rolls back") {
    const auto matcher = MatcherOf(GrammarKind::kRegex, "a+é?b");
    const std::set<TokenId> at_start = Allowed(*matcher);
    REQUIRE(matcher->AcceptText("aa\xC3"));
    CHECK(matcher->num_accepted() == 1);
    CHECK(Allowed(*matcher) == Ids({"\xA9"}));
    // A text that fits in part changes nothing.
    CHECK(
        !matcher->AcceptText("\xA9"
                             "bb"));
    CHECK(Allowed(*matcher) == Ids({"\xA9"}));
    REQUIRE(matcher->AcceptText(""));
    REQUIRE(matcher->Accept(Id("\xA9")));
    REQUIRE(matcher->AcceptText("b"));
    CHECK(matcher->IsFinished());
    matcher->Rollback(2);
    CHECK(Allowed(*matcher) == Ids({"\xA9"}));
    matcher->Rollback(matcher->num_accepted());
    CHECK(Allowed(*matcher) == at_start);
    REQUIRE(AcceptText(*matcher, "ab"));
    REQUIRE(matcher->Accept(kEos));
    CHECK(!matcher->AcceptText("a"));
  }

  TEST_CASE("a stop id of xgrammar is never text, and another sequence may have it as text") {
    const auto grammar = Compile(GrammarKind::kRegex, "x+");
    const auto stops = grammar->NewMatcher({.stop_ids = {kStopX}});
    CHECK(Allowed(*stops).empty());
    CHECK(!stops->Accept(kStopX));
    const auto text = grammar->NewMatcher({.stop_ids = {kEos}});
    CHECK(Allowed(*text) == std::set<TokenId>{kStopX});
    REQUIRE(text->Accept(kStopX));
    CHECK(Allowed(*text) == std::set<TokenId>{kStopX, kEos});
    CHECK(!text->IsFinished());
    const auto none = grammar->NewMatcher({});
    REQUIRE(none->Accept(kStopX));
    CHECK(none->IsAccepting());
  }
}

}  // namespace specd::grammar
