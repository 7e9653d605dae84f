#include "speculative/grammar/rules/grammar_rules.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "kernels/core/check.h"
#include "speculative/grammar/automata/word_dfa.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {

GrammarRules::GrammarRules() {
  exprs_.push_back({.kind = ExprKind::kEmpty});
  exprs_.push_back({.kind = ExprKind::kNever});
}

ExprId GrammarRules::Intern(uint64_t content, Expr expr,
                            absl::FunctionRef<bool(const Expr&)> has_content,
                            absl::FunctionRef<uint32_t()> add_content) {
  const uint32_t hash =
      absl::HashOf(expr.kind, expr.min, expr.max, expr.payload, expr.parts, content);
  const ExprId known = numbers_.Find(hash, [&](ExprId id) {
    const Expr& other = exprs_[id];
    return other.kind == expr.kind && other.min == expr.min && other.max == expr.max &&
           other.parts == expr.parts && has_content(other);
  });
  if (known != IdTable::kNone) return known;
  numbers_.Reserve();
  expr.payload = add_content();
  const auto id = static_cast<ExprId>(exprs_.size());
  exprs_.push_back(std::move(expr));
  numbers_.Insert(hash, id);
  return id;
}

ExprId GrammarRules::Intern(Expr expr) {
  const uint32_t payload = expr.payload;
  return Intern(
      0, std::move(expr), [&](const Expr& other) { return other.payload == payload; },
      [&] { return payload; });
}

template <typename Content, typename Contents>
ExprId GrammarRules::InternIn(Expr expr, uint64_t hash, Content&& content, Contents* contents) {
  return Intern(
      hash, std::move(expr),
      [&](const Expr& other) { return (*contents)[other.payload] == content; },
      [&] {
        contents->emplace_back(std::forward<Content>(content));
        return static_cast<uint32_t>(contents->size() - 1);
      });
}

ExprId GrammarRules::Bytes(const ByteSet& set) {
  if (set.IsEmpty()) return kNeverExpr;
  return InternIn({.kind = ExprKind::kBytes}, absl::HashOf(set), set, &byte_sets_);
}

ExprId GrammarRules::Chars(const CharSet& set) {
  if (set.IsEmpty()) return kNeverExpr;
  return InternIn({.kind = ExprKind::kChars}, absl::HashOf(set), set, &char_sets_);
}

ExprId GrammarRules::Literal(std::string_view bytes) {
  if (bytes.empty()) return kEmptyExpr;
  return InternIn({.kind = ExprKind::kLiteral}, absl::HashOf(bytes), bytes, &literals_);
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
  return Intern({.kind = ExprKind::kSequence, .parts = std::move(flat)});
}

void GrammarRules::JoinLiterals(List<ExprId>* parts) {
  constexpr size_t kLiteralsApartMax = 32;
  const auto is_literal = [&](ExprId part) { return exprs_[part].kind == ExprKind::kLiteral; };
  List<std::string_view> words;
  for (const ExprId part : *parts) {
    if (is_literal(part)) words.push_back(literal(exprs_[part]));
  }
  if (words.size() <= kLiteralsApartMax) return;
  absl::StatusOr<ByteDfa> joined = BuildWordDfa(std::move(words));
  if (!joined.ok()) return;  // too many for one automaton
  std::erase_if(*parts, is_literal);
  parts->push_back(Automaton(*std::move(joined)));
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
  JoinLiterals(&flat);
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return kNeverExpr;
  if (flat.size() == 1) return flat[0];
  return Intern({.kind = ExprKind::kAnyOf, .parts = std::move(flat)});
}

ExprId GrammarRules::Repeat(ExprId part, uint32_t min, uint32_t max) {
  SPECD_CHECK(min <= max);
  if (max == 0 || part == kEmptyExpr) return kEmptyExpr;
  if (part == kNeverExpr) return min == 0 ? kEmptyExpr : kNeverExpr;
  if (min == 1 && max == 1) return part;
  // Repetitions of repetitions are one, if the counts of min times, min + 1 times, ... leave no
  // gap. The counts of k times are k * inner.min to k * inner.max; later gaps are smaller.
  const Expr& inner = exprs_[part];
  if (inner.kind == ExprKind::kRepeat) {
    const auto times = [](uint64_t a, uint64_t b) {
      return a == kUnbounded || b == kUnbounded ? uint64_t{kUnbounded} : a * b;
    };
    const uint64_t first = std::max<uint32_t>(min, 1);
    const bool is_gapless =
        (min > 0 || inner.min <= 1) &&
        (max == first || times(first, inner.max) + 1 >= (first + 1) * inner.min);
    const uint64_t low = uint64_t{min} * inner.min;
    const uint64_t high = times(max, inner.max);
    if (is_gapless && low < kUnbounded && high <= kUnbounded) {
      const ExprId once = inner.parts[0];
      return Repeat(once, static_cast<uint32_t>(low), static_cast<uint32_t>(high));
    }
  }
  return Intern({.kind = ExprKind::kRepeat, .min = min, .max = max, .parts = {part}});
}

ExprId GrammarRules::Call(RuleId rule) {
  SPECD_CHECK(rule < rules_.size());
  return Intern({.kind = ExprKind::kCall, .payload = rule});
}

ExprId GrammarRules::Automaton(ByteDfa dfa) {
  if (dfa.IsEmpty()) return kNeverExpr;
  return InternIn({.kind = ExprKind::kAutomaton}, absl::HashOf(dfa), std::move(dfa), &automata_);
}

ExprId GrammarRules::MembersOf(Members members) {
  bool is_possible = true;
  std::erase_if(members.keys, [&](const Members::Key& key) {
    const bool is_never = key.value == kNeverExpr;
    if (is_never && key.is_required) is_possible = false;
    return is_never;
  });
  if (!is_possible || (members.keys.empty() && members.other == kNeverExpr)) return kNeverExpr;
  SPECD_CHECK(members.has_values || (members.any_order && members.other == kNeverExpr));
  if (members.any_order) {
    // The keys that begin alike are neighbours.
    std::sort(members.keys.begin(), members.keys.end(),
              [](const Members::Key& a, const Members::Key& b) { return a.text < b.text; });
  }
  List<ExprId> parts;
  for (const Members::Key& key : members.keys) {
    parts.push_back(Sequence({Literal(key.text), key.value}));
  }
  parts.push_back(members.separator);
  parts.push_back(members.other);
  if (members.has_need) {
    SPECD_CHECK(members.max == kUnbounded);
    for (const Members::Key& key : members.keys) {
      parts.push_back(Sequence({Literal(key.text), key.needed_value}));
    }
    parts.push_back(members.needed_other);
  }
  return InternIn({.kind = ExprKind::kMembers, .parts = std::move(parts)},
                  absl::HashOf(members.min, members.max), std::move(members), &members_);
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
