// AnchoredExpr is a part of a pattern: an expression for each answer to "is the part at the begin
// of the text?" and "is it at the end?".
//
// The anchors ^ and $ are parts whose text is empty, and whose language depends on the two answers.
// The operations build longer parts from shorter ones and stay exact. They rest on one fact: an
// anchor only ever allows more at an edge than inside, so the language inside is part of the
// language at the edge. Plain data; the expressions belong to one GrammarRules.
//
//   const AnchoredExpr parts[] = {BeginAnchor(rules), Unanchored(ab_id, false)};
//   const AnchoredExpr ab = ConcatAnchored(parts, &rules);
//   const ExprId whole = ab.expr[1][1];      // "ab": the part is the whole text
//   const ExprId inside = ab.expr[0][0];     // no text
#pragma once

#include <cstdint>
#include <span>

#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

struct AnchoredExpr {
  // Without ^ the first index makes no difference, without $ the second.
  bool has_begin_anchor = false;
  bool has_end_anchor = false;
  // [the part begins the text][the part ends the text]
  ExprId expr[2][2] = {};
  bool is_nullable[2][2] = {};  // the empty text is in the language
  // The repetitions around the innermost anchor. Each one makes the part about three times as long.
  int num_repeats = 0;

  bool HasAnchors() const { return has_begin_anchor || has_end_anchor; }
};

AnchoredExpr Unanchored(ExprId expr, bool is_nullable);
AnchoredExpr BeginAnchor(const GrammarRules& rules);
AnchoredExpr EndAnchor(const GrammarRules& rules);

AnchoredExpr ConcatAnchored(std::span<const AnchoredExpr> parts, GrammarRules* rules);
AnchoredExpr UniteAnchored(std::span<const AnchoredExpr> parts, GrammarRules* rules);
// REQUIRES: min <= max.
AnchoredExpr RepeatAnchored(const AnchoredExpr& part, uint32_t min, uint32_t max,
                            GrammarRules* rules);

// The texts that have the part at some place.
ExprId SearchAnchored(const AnchoredExpr& part, GrammarRules* rules);

}  // namespace specd::grammar
