// CheckFrontEnd checks what every front end of grammars promises, for the fuzzers of their parsers.
//
// Aborts when a promise is broken. Thread safety: none needed, a fuzzer has one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/check.h"
#include "speculative/grammar/base/utf8_text.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

inline constexpr size_t kFuzzSizeBytesMax = 1 << 14;

// Outsiders see the text of an error, so it is short and valid UTF-8 for every input.
inline void CheckRefusal(const absl::Status& status) {
  SPECD_CHECK(status.code() == absl::StatusCode::kInvalidArgument ||
              status.code() == absl::StatusCode::kUnimplemented ||
              status.code() == absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  SPECD_CHECK(!message.empty() && message.size() < 8000);
  SPECD_CHECK(FindInvalidUtf8(message) == std::string_view::npos);
}

inline void CheckAutomaton(const ByteDfa& dfa) {
  SPECD_CHECK(!dfa.states.empty());
  for (const ByteDfa::State& state : dfa.states) {
    int last = -1;
    for (const ByteDfa::Edge& edge : state.edges) {
      SPECD_CHECK(edge.first > last && edge.last >= edge.first);
      SPECD_CHECK(edge.target < dfa.states.size());
      last = edge.last;
    }
  }
}

inline void CheckFrontEnd(const GrammarRules& rules, const absl::StatusOr<ExprId>& root) {
  if (!root.ok()) return CheckRefusal(root.status());
  SPECD_CHECK(*root < rules.num_exprs());
  for (RuleId rule = 0; rule < rules.num_rules(); ++rule) SPECD_CHECK(rules.IsDefined(rule));
  for (ExprId id = 0; id < rules.num_exprs(); ++id) {
    const Expr& expr = rules.expr(id);
    for (const ExprId part : expr.parts) SPECD_CHECK(part < id);
    if (expr.kind == ExprKind::kAutomaton) CheckAutomaton(rules.automaton(expr));
    if (expr.kind == ExprKind::kLiteral) {
      SPECD_CHECK(FindInvalidUtf8(rules.literal(expr)) == std::string_view::npos);
    }
  }
}

}  // namespace specd::grammar
