// Whole texts of a ConstrainedEngine, with drafts of any kind, and the constraints that they are
// held against. No state.
//
//   const Text text = Generate(engine, params, nullptr, 0, DraftKind::kOneHot, 0);
//   CheckObeys(constraint, text);
#pragma once

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "speculative/grammar/front_ends/ebnf.h"
#include "speculative/grammar/front_ends/regex.h"
#include "tests/speculative/constrained_engine.h"
#include "tests/support/grammar_reference.h"

namespace specd {

struct Text {
  Ids ids;
  FinishReason reason = FinishReason::kNone;
  uint32_t num_accepted = 0;
};

// Drafts are half right, and else any id, -1 and ids outside the vocabulary among them. If `trees`
// is set, a node follows any of the three before it, or the kept tokens.
inline Text Generate(ConstrainedEngine& engine, const SequenceParams& params, const Text* guess,
                     int32_t max_draft, DraftKind kind, uint32_t seed, bool trees = false) {
  std::mt19937 random(seed);
  Text text;
  const SequenceHandle sequence = engine.Open(params);
  while (text.reason == FinishReason::kNone) {
    Ids drafts;
    std::vector<int32_t> parents;
    std::vector<size_t> depths;
    while (static_cast<int32_t>(drafts.size()) < max_draft && random() % 5 != 0) {
      const auto back = static_cast<int32_t>(trees ? random() % 3 : 0);
      const int32_t parent = std::max(static_cast<int32_t>(drafts.size()) - 1 - back, kRoot);
      depths.push_back(parent == kRoot ? 0 : depths[static_cast<size_t>(parent)] + 1);
      if (trees) parents.push_back(parent);
      const size_t at = text.ids.size() + depths.back();
      const bool right = guess != nullptr && at < guess->ids.size() && random() % 5 != 0;
      drafts.push_back(right ? guess->ids[at] : static_cast<TokenId>(random() % (kVocab + 3)) - 1);
    }
    const SequenceResult result = engine.Round(sequence, text.ids, drafts, kind, 1, parents);
    REQUIRE(result.status == RoundStatus::kOk);
    const Ids kept = Kept(result);
    text.ids.insert(text.ids.end(), kept.begin(), kept.end());
    text.reason = result.finish_reason;
    text.num_accepted += result.num_accepted;
  }
  REQUIRE(engine.verifier().Close(sequence));
  return text;
}

struct Constraint {
  GrammarKind kind;
  const char* text;
  const char* rules = nullptr;  // EBNF of the same texts, for other kinds than regex and EBNF
};
inline const Constraint kConstraints[] = {
    {GrammarKind::kRegex, "(ab|c)*12?"},
    {GrammarKind::kRegex, "[abc]{3,6}(\\+[12]+)?"},
    {GrammarKind::kEbnf, "root ::= e\ne ::= e \"+\" t | t\nt ::= \"(\" e \")\" | [12] | \"a\""},
    {GrammarKind::kEbnf, "root ::= \"(\" root \")\" | \"abc\" \" \"?"},
    {GrammarKind::kRegex, "abc\\+1"},
    // Every "(" of the text begins a tag.
    {GrammarKind::kStructuralTag,
     R"g({"type":"structural_tag","triggers":["("],"structures":[)g"
     R"g({"begin":"(a","schema":{"enum":[1,12]},"end":")"}]})g",
     R"g(root ::= ([^(] | "(a" ("1" | "12") ")")*)g"},
};

inline grammar::GrammarRules RulesOf(const Constraint& constraint) {
  grammar::GrammarRules rules;
  const auto body =
      constraint.kind == GrammarKind::kRegex
          ? grammar::ParseRegex(constraint.text, {}, &rules)
          : grammar::ParseEbnf(constraint.rules == nullptr ? constraint.text : constraint.rules, {},
                               &rules);
  REQUIRE(body.ok());
  const grammar::RuleId root = rules.AddRule("all");
  rules.Define(root, *body);
  rules.SetRoot(root);
  return rules;
}

inline void CheckObeys(const Constraint& constraint, const Text& text) {
  const grammar::GrammarRules rules = RulesOf(constraint);
  grammar::GrammarReference reference(rules);
  CAPTURE(constraint.text);
  CAPTURE(TextOf(text.ids));
  if (text.reason == FinishReason::kStop) {
    REQUIRE(reference.Accepts(TextOf(text.ids)));
  } else {
    REQUIRE(text.reason == FinishReason::kLength);
    REQUIRE(reference.IsPrefix(TextOf(text.ids)));
  }
}

}  // namespace specd
