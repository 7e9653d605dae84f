#include "speculative/grammar/front_ends/stop_regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/automata/dfa_minimizer.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/utf8_text.h"
#include "speculative/grammar/front_ends/anchored_expr.h"
#include "speculative/grammar/front_ends/lookahead.h"
#include "speculative/grammar/front_ends/regex_parser.h"
#include "speculative/grammar/rules/grammar_rules.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {
namespace {

// Of all patterns of a request together: some tens of milliseconds. Estimate. Time is no bound
// here, because the text side must take what the opening has taken.
constexpr BudgetLimits kStopLimits = {.units = 1 << 20, .levels = 256};

absl::Status NotSearched() {
  return absl::UnimplementedError(
      "^, $ and lookaheads speak of the whole text, and a stop is searched while the text grows; "
      "leave them out");
}

absl::StatusOr<ByteDfa> AutomatonOf(std::string_view pattern) {
  if (FindInvalidUtf8(pattern) != std::string_view::npos) {
    return absl::InvalidArgumentError(
        "the pattern is not UTF-8; write \\xHH or \\u{...} for a character");
  }
  if (HasLookahead(pattern)) return NotSearched();
  GrammarRules rules;
  const absl::StatusOr<AnchoredExpr> parsed = ParseAnchoredRegex(pattern, &rules);
  if (!parsed.ok()) return parsed.status();
  if (parsed->HasAnchors()) return NotSearched();
  return Determinize(rules, parsed->expr[0][0]);
}

// The shortest matches alone: a text that has a match as its beginning is none.
ByteDfa Shortest(ByteDfa dfa) {
  for (ByteDfa::State& state : dfa.states) {
    if (state.accepting) state.edges.clear();
  }
  return DfaMinimizer(dfa).Run();
}

// The size of the longest text; nothing if the automaton has a circle.
std::optional<size_t> LongestText(const ByteDfa& dfa) {
  List<uint32_t> num_into(dfa.states.size(), 0);
  for (const ByteDfa::State& state : dfa.states) {
    for (const ByteDfa::Edge& edge : state.edges) ++num_into[edge.target];
  }
  if (num_into[0] > 0) return std::nullopt;
  List<size_t> longest(dfa.states.size(), 0);
  List<uint32_t> ready = {0};  // every way to these is known
  for (size_t i = 0; i < ready.size(); ++i) {
    const uint32_t from = ready[i];
    for (const ByteDfa::Edge& edge : dfa.states[from].edges) {
      longest[edge.target] = std::max(longest[edge.target], longest[from] + 1);
      if (--num_into[edge.target] == 0) ready.push_back(edge.target);
    }
  }
  if (ready.size() < dfa.states.size()) return std::nullopt;
  return *std::max_element(longest.begin(), longest.end());
}

absl::StatusOr<StopPattern> Compile(std::string_view pattern) {
  absl::StatusOr<ByteDfa> parsed = AutomatonOf(pattern);
  if (!parsed.ok()) return parsed.status();
  if (!parsed->IsEmpty() && parsed->states[0].accepting) {
    return absl::InvalidArgumentError(
        "the pattern matches the empty text, which would end every text at once; let it need at "
        "least one character");
  }
  const ByteDfa dfa = Shortest(*std::move(parsed));
  if (dfa.IsEmpty()) {
    return absl::InvalidArgumentError("no text matches the pattern; leave it out");
  }
  const std::optional<size_t> longest = LongestText(dfa);
  if (!longest.has_value() || *longest > StopPattern::kMatchSizeBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("a match may be longer than {} bytes, and text that may become a match is "
                    "held back; bound the repetitions before the match's end, as {{0,20}}",
                    StopPattern::kMatchSizeBytesMax));
  }
  StopPattern result = {.text = std::string(pattern), .states = {}};
  for (const ByteDfa::State& state : dfa.states) {
    auto& edges = result.states.emplace_back();
    for (const ByteDfa::Edge& edge : state.edges) {
      edges.push_back({edge.first, edge.last, edge.target});
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<std::vector<StopPattern>> CompileStopPatterns(
    std::span<const std::string> patterns) {
  std::vector<StopPattern> compiled;
  absl::Status status;
  size_t index = 0;
  const absl::Status refusal = Budget::Run(kStopLimits, [&] {
    for (; index < patterns.size() && status.ok(); ++index) {
      absl::StatusOr<StopPattern> pattern = Compile(patterns[index]);
      if (!pattern.ok()) {
        status = pattern.status();
        return;
      }
      compiled.push_back(*std::move(pattern));
    }
  });
  if (!refusal.ok()) status = refusal;
  if (status.ok()) return compiled;
  return absl::Status(status.code(), fmt::format("stop_regex[{}]: {}", index,
                                                 std::string_view(status.message().data(),
                                                                  status.message().size())));
}

absl::StatusOr<std::shared_ptr<const StopSet>> MakeStopSet(
    const std::vector<std::string>& strings, const std::vector<std::string>& patterns) {
  absl::StatusOr<std::vector<StopPattern>> compiled = CompileStopPatterns(patterns);
  if (!compiled.ok()) return compiled.status();
  return StopSet::Create(strings, *std::move(compiled));
}

}  // namespace specd::grammar
