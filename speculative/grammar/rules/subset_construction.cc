#include "speculative/grammar/rules/subset_construction.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "fmt/format.h"
#include "speculative/grammar/automata/dfa_minimizer.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {

absl::StatusOr<ByteDfa> SubsetConstruction::Run() {
  for (const ByteNfa::Node& node : nfa_.nodes) {
    if (node.calls.empty()) continue;
    return absl::InvalidArgumentError(
        "an expression that calls a rule has no finite automaton: write the rule's body in place "
        "of the call");
  }
  Intern(Close({nfa_.start}));
  ByteDfa result;
  size_t num_edges = 0;
  for (size_t number = 0; number < subsets_.size(); ++number) {
    const Subset& subset = *subsets_[number];
    ByteDfa::State& state = result.states.emplace_back();
    state.accepting = std::binary_search(subset.begin(), subset.end(), nfa_.final);
    Expand(subset, &state.edges);
    num_edges += state.edges.size();
    if (absl::Status status = CheckGrowth(subsets_.size(), num_edges); !status.ok()) return status;
    if (!Budget::Spend(num_visits_ - num_spent_)) return Budget::Refusal();
    num_spent_ = num_visits_;
    if (!IsWithinWork()) {
      return absl::ResourceExhaustedError(
          fmt::format("the automaton of an expression takes too much work after {} states: shorten "
                      "nested repetitions",
                      result.states.size()));
    }
  }
  return MinimizeWithinLimits(result);
}

SubsetConstruction::Subset SubsetConstruction::Close(const Subset& seeds) {
  ++num_closings_;
  Subset closed;
  Subset open;
  const auto visit = [&](uint32_t node) {
    ++num_visits_;
    if (visited_in_[node] == num_closings_) return;
    visited_in_[node] = num_closings_;
    open.push_back(node);
  };
  for (const uint32_t seed : seeds) visit(seed);
  while (!open.empty()) {
    const uint32_t node = open.back();
    open.pop_back();
    if (!nfa_.nodes[node].edges.empty() || node == nfa_.final) closed.push_back(node);
    for (const uint32_t target : nfa_.nodes[node].empties) visit(target);
  }
  std::sort(closed.begin(), closed.end());
  return closed;
}

uint32_t SubsetConstruction::Intern(Subset subset) {
  if (subset.empty()) return ByteDfa::kDead;
  const size_t num_nodes = subset.size();
  const auto [place, is_new] =
      number_of_.try_emplace(std::move(subset), static_cast<uint32_t>(subsets_.size()));
  if (is_new) {
    subsets_.push_back(&place->first);
    num_nodes_ += num_nodes;
  }
  return place->second;
}

void SubsetConstruction::Expand(const Subset& subset, List<ByteDfa::Edge>* edges) {
  // Stretches of bytes that no edge of the subset tells apart, by their first bytes.
  std::bitset<257> begins;
  begins.set(0);
  begins.set(256);
  for (const uint32_t node : subset) {
    for (const ByteNfa::Edge& edge : nfa_.nodes[node].edges) {
      begins.set(edge.first);
      begins.set(edge.last + size_t{1});
    }
  }
  for (const uint32_t node : subset) {
    for (const ByteNfa::Edge& edge : nfa_.nodes[node].edges) {
      for (size_t byte = edge.first; byte <= edge.last; ++byte) {
        if (begins.test(byte)) targets_of_[byte].push_back(edge.target);
      }
      num_visits_ += 1 + (edge.last - edge.first) / 16;
    }
  }
  for (size_t first = 0; first < 256;) {
    size_t end = first + 1;
    while (!begins.test(end)) ++end;
    Subset& targets = targets_of_[first];
    const uint32_t target = targets.empty() ? ByteDfa::kDead : Intern(Close(targets));
    targets.clear();
    if (target != ByteDfa::kDead) {
      AppendEdge({.first = static_cast<uint8_t>(first),
                  .last = static_cast<uint8_t>(end - 1),
                  .target = target},
                 edges);
    }
    first = end;
  }
}

absl::StatusOr<ByteDfa> Determinize(const GrammarRules& rules, ExprId expr) {
  const absl::StatusOr<ByteNfa> nfa = BuildNfa(rules, expr, {});
  if (!nfa.ok()) return nfa.status();
  return SubsetConstruction(*nfa).Run();
}

}  // namespace specd::grammar
