#include "speculative/grammar/front_ends/anchored_expr.h"

#include <algorithm>

#include "speculative/grammar/base/counted.h"

namespace specd::grammar {
namespace {

// Calls function(b, e) for each pair of answers that makes a difference, and copies the others.
template <class Function>
void FillContexts(AnchoredExpr* part, const Function& function) {
  for (int b = 0; b < 2; ++b) {
    for (int e = 0; e < 2; ++e) {
      const int same_b = part->has_begin_anchor ? b : 0;
      const int same_e = part->has_end_anchor ? e : 0;
      if (same_b == b && same_e == e) {
        function(b, e);
      } else {
        part->expr[b][e] = part->expr[same_b][same_e];
        part->is_nullable[b][e] = part->is_nullable[same_b][same_e];
      }
    }
  }
}

// The text of the pair is u v. The left part ends the text if the pair does and v is empty; the
// right part begins it if the pair does and u is empty. Each alternative below is allowed with
// every u and v that it has, as the language inside is part of the language at an edge.
AnchoredExpr ConcatPair(const AnchoredExpr& left, const AnchoredExpr& right, GrammarRules* rules) {
  AnchoredExpr pair;
  pair.has_begin_anchor = left.has_begin_anchor || right.has_begin_anchor;
  pair.has_end_anchor = left.has_end_anchor || right.has_end_anchor;
  pair.num_repeats = std::max(left.num_repeats, right.num_repeats);
  FillContexts(&pair, [&](int b, int e) {
    List<ExprId> ways = {rules->Sequence({left.expr[b][0], right.expr[0][e]})};
    const bool is_right_at_begin = b == 1 && right.has_begin_anchor;
    const bool is_left_at_end = e == 1 && left.has_end_anchor;
    if (is_right_at_begin && left.is_nullable[b][0]) ways.push_back(right.expr[1][e]);
    if (is_left_at_end && right.is_nullable[0][e]) ways.push_back(left.expr[b][1]);
    pair.is_nullable[b][e] = left.is_nullable[b][e] && right.is_nullable[b][e];
    if (pair.is_nullable[b][e] && (is_right_at_begin || is_left_at_end)) {
      ways.push_back(rules->Empty());
    }
    pair.expr[b][e] = rules->AnyOf(ways);
  });
  return pair;
}

}  // namespace

AnchoredExpr Unanchored(ExprId expr, bool is_nullable) {
  AnchoredExpr part;
  FillContexts(&part, [&](int b, int e) {
    part.expr[b][e] = expr;
    part.is_nullable[b][e] = is_nullable;
  });
  return part;
}

AnchoredExpr BeginAnchor(const GrammarRules& rules) {
  AnchoredExpr part;
  part.has_begin_anchor = true;
  FillContexts(&part, [&](int b, int e) {
    part.expr[b][e] = b == 1 ? rules.Empty() : rules.Never();
    part.is_nullable[b][e] = b == 1;
  });
  return part;
}

AnchoredExpr EndAnchor(const GrammarRules& rules) {
  AnchoredExpr part;
  part.has_end_anchor = true;
  FillContexts(&part, [&](int b, int e) {
    part.expr[b][e] = e == 1 ? rules.Empty() : rules.Never();
    part.is_nullable[b][e] = e == 1;
  });
  return part;
}

// By halves, so that the recursion is shallow and few expressions repeat others.
AnchoredExpr ConcatAnchored(std::span<const AnchoredExpr> parts, GrammarRules* rules) {
  if (parts.empty()) return Unanchored(rules->Empty(), true);
  if (parts.size() == 1) return parts[0];
  if (std::none_of(parts.begin(), parts.end(),
                   [](const AnchoredExpr& part) { return part.HasAnchors(); })) {
    List<ExprId> exprs;
    bool is_nullable = true;
    for (const AnchoredExpr& part : parts) {
      exprs.push_back(part.expr[0][0]);
      is_nullable = is_nullable && part.is_nullable[0][0];
    }
    return Unanchored(rules->Sequence(exprs), is_nullable);
  }
  const size_t half = parts.size() / 2;
  return ConcatPair(ConcatAnchored(parts.first(half), rules),
                    ConcatAnchored(parts.subspan(half), rules), rules);
}

AnchoredExpr UniteAnchored(std::span<const AnchoredExpr> parts, GrammarRules* rules) {
  AnchoredExpr any;
  for (const AnchoredExpr& part : parts) {
    any.has_begin_anchor = any.has_begin_anchor || part.has_begin_anchor;
    any.has_end_anchor = any.has_end_anchor || part.has_end_anchor;
    any.num_repeats = std::max(any.num_repeats, part.num_repeats);
  }
  FillContexts(&any, [&](int b, int e) {
    List<ExprId> exprs;
    for (const AnchoredExpr& part : parts) {
      exprs.push_back(part.expr[b][e]);
      any.is_nullable[b][e] = any.is_nullable[b][e] || part.is_nullable[b][e];
    }
    any.expr[b][e] = rules->AnyOf(exprs);
  });
  return any;
}

// Only the first copy that has text can begin the whole text, and only the last one can end it.
// Copies without text make up the count where the part may be empty.
AnchoredExpr RepeatAnchored(const AnchoredExpr& part, uint32_t min, uint32_t max,
                            GrammarRules* rules) {
  if (!part.HasAnchors()) {
    return Unanchored(rules->Repeat(part.expr[0][0], min, max), min == 0 || part.is_nullable[0][0]);
  }
  AnchoredExpr repeat;
  repeat.has_begin_anchor = part.has_begin_anchor;
  repeat.has_end_anchor = part.has_end_anchor;
  repeat.num_repeats = part.num_repeats + 1;
  FillContexts(&repeat, [&](int b, int e) {
    List<ExprId> ways;
    // Copies without text may stand before the first one with text, or after the last.
    const bool may_be_fewer = part.is_nullable[b][0] || part.is_nullable[0][e];
    const uint32_t fewest = may_be_fewer ? 1 : std::max(min, 1u);
    repeat.is_nullable[b][e] = min == 0 || part.is_nullable[b][e];
    if (repeat.is_nullable[b][e]) ways.push_back(rules->Empty());
    if (max >= 1 && fewest <= 1) ways.push_back(part.expr[b][e]);
    if (max >= 2) {
      const uint32_t inner_max = max == kUnbounded ? kUnbounded : max - 2;
      const ExprId inner = rules->Repeat(part.expr[0][0], std::max(fewest, 2u) - 2, inner_max);
      ways.push_back(rules->Sequence({part.expr[b][0], inner, part.expr[0][e]}));
    }
    repeat.expr[b][e] = rules->AnyOf(ways);
  });
  return repeat;
}

ExprId SearchAnchored(const AnchoredExpr& part, GrammarRules* rules) {
  const ExprId any_text = rules->Star(rules->Chars(CharSet::All()));
  if (part.is_nullable[0][0]) return any_text;
  List<ExprId> ways = {rules->Sequence({any_text, part.expr[0][0], any_text})};
  if (part.has_begin_anchor) ways.push_back(rules->Sequence({part.expr[1][0], any_text}));
  if (part.has_end_anchor) ways.push_back(rules->Sequence({any_text, part.expr[0][1]}));
  if (part.has_begin_anchor && part.has_end_anchor) ways.push_back(part.expr[1][1]);
  return rules->AnyOf(ways);
}

}  // namespace specd::grammar
