#include "speculative/grammar/grammar_rules.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"
#include "speculative/grammar/counted.h"

namespace specd::grammar {

GrammarRules::GrammarRules() {
  exprs_.push_back({.kind = ExprKind::kEmpty});
  exprs_.push_back({.kind = ExprKind::kNever});
}

ExprId GrammarRules::Add(Expr expr) {
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId GrammarRules::Bytes(const ByteSet& set) {
  if (set.IsEmpty()) return kNeverExpr;
  byte_sets_.push_back(set);
  return Add({.kind = ExprKind::kBytes, .payload = static_cast<uint32_t>(byte_sets_.size() - 1)});
}

ExprId GrammarRules::Chars(const CharSet& set) {
  if (set.IsEmpty()) return kNeverExpr;
  char_sets_.push_back(set);
  return Add({.kind = ExprKind::kChars, .payload = static_cast<uint32_t>(char_sets_.size() - 1)});
}

ExprId GrammarRules::Literal(std::string_view bytes) {
  if (bytes.empty()) return kEmptyExpr;
  literals_.emplace_back(bytes);
  return Add({.kind = ExprKind::kLiteral, .payload = static_cast<uint32_t>(literals_.size() - 1)});
}

ExprId GrammarRules::Sequence(std::span<const ExprId> parts) {
  List<ExprId> flat;
  for (const ExprId part : parts) {
    if (part == kNeverExpr) return kNeverExpr;
    if (part == kEmptyExpr) continue;
    if (exprs_[part].kind == ExprKind::kSequence) {
      flat.insert(flat.end(), exprs_[part].parts.begin(), exprs_[part].parts.end());
    } else {
      flat.push_back(part);
    }
  }
  if (flat.empty()) return kEmptyExpr;
  if (flat.size() == 1) return flat[0];
  return Add({.kind = ExprKind::kSequence, .parts = std::move(flat)});
}

ExprId GrammarRules::AnyOf(std::span<const ExprId> parts) {
  List<ExprId> flat;
  for (const ExprId part : parts) {
    if (part == kNeverExpr) continue;
    if (exprs_[part].kind == ExprKind::kAnyOf) {
      flat.insert(flat.end(), exprs_[part].parts.begin(), exprs_[part].parts.end());
    } else {
      flat.push_back(part);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return kNeverExpr;
  if (flat.size() == 1) return flat[0];
  return Add({.kind = ExprKind::kAnyOf, .parts = std::move(flat)});
}

ExprId GrammarRules::Repeat(ExprId part, uint32_t min, uint32_t max) {
  SPECD_CHECK(min <= max);
  if (max == 0 || part == kEmptyExpr) return kEmptyExpr;
  if (part == kNeverExpr) return min == 0 ? kEmptyExpr : kNeverExpr;
  if (min == 1 && max == 1) return part;
  return Add({.kind = ExprKind::kRepeat, .min = min, .max = max, .parts = {part}});
}

ExprId GrammarRules::Call(RuleId rule) {
  SPECD_CHECK(rule < rules_.size());
  return Add({.kind = ExprKind::kCall, .payload = rule});
}

ExprId GrammarRules::Automaton(ByteDfa dfa) {
  if (dfa.IsEmpty()) return kNeverExpr;
  automata_.push_back(std::move(dfa));
  return Add(
      {.kind = ExprKind::kAutomaton, .payload = static_cast<uint32_t>(automata_.size() - 1)});
}

RuleId GrammarRules::AddRule(std::string name) {
  rules_.push_back({.name = std::move(name)});
  return static_cast<RuleId>(rules_.size() - 1);
}

void GrammarRules::Define(RuleId rule, ExprId body) {
  SPECD_CHECK(rule < rules_.size() && !rules_[rule].is_defined);
  rules_[rule].body = body;
  rules_[rule].is_defined = true;
}

}  // namespace specd::grammar
