#include "speculative/grammar/rules/rule_nfas.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/functional/function_ref.h"
#include "fmt/format.h"
#include "kernels/core/check.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/rules/frame_rule.h"
#include "speculative/grammar/rules/inlined_rules.h"
#include "speculative/grammar/rules/left_recursion.h"

namespace specd::grammar {
namespace {

using Node = ByteNfa::Node;

absl::Status TooLarge() {
  return absl::ResourceExhaustedError(
      fmt::format("the grammar needs more than {} nodes: shorten its repetitions", kNfaNodesMax));
}

// The nodes of `nfa` from which its final node can be reached, if only calls of `is_usable` rules
// return.
std::vector<bool> ReachesFinal(const ByteNfa& nfa, const std::vector<bool>& is_usable) {
  // The nodes before node i are before[begins[i]] up to before[begins[i + 1]].
  List<uint32_t> begins(nfa.nodes.size() + 1);
  const auto for_each = [&](absl::FunctionRef<void(uint32_t from, uint32_t to)> visit) {
    for (uint32_t from = 0; from < nfa.nodes.size(); ++from) {
      const Node& node = nfa.nodes[from];
      for (const ByteNfa::Edge& edge : node.edges) visit(from, edge.target);
      for (const uint32_t to : node.empties) visit(from, to);
      for (const ByteNfa::CallEdge& call : node.calls) {
        if (is_usable[call.rule]) visit(from, call.target);
      }
    }
  };
  for_each([&](uint32_t, uint32_t to) { ++begins[to]; });
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  List<uint32_t> before(begins.back());
  for_each([&](uint32_t from, uint32_t to) { before[--begins[to]] = from; });
  std::vector<bool> reaches(nfa.nodes.size());
  List<uint32_t> open = {nfa.final};
  reaches[nfa.final] = true;
  while (!open.empty()) {
    const uint32_t node = open.back();
    open.pop_back();
    for (uint32_t i = begins[node]; i < begins[node + 1]; ++i) {
      if (!reaches[before[i]]) open.push_back(before[i]);
      reaches[before[i]] = true;
    }
  }
  return reaches;
}

// True if the key has a text, when the rules with `has_text` have one.
bool HasMember(const FrameRule& frame, const FrameRule::Key& key,
               const std::vector<bool>& has_text) {
  return key.is_spelled && (!frame.has_values || (key.value != kNoRule && has_text[key.value]));
}

// True if a text of the frame rule is sure, when the rules with `has_text` have one.
bool HasText(const FrameRule& frame, const std::vector<bool>& has_text) {
  const auto is_usable = [&](RuleId rule) { return rule != kNoRule && has_text[rule]; };
  if (frame.kind == FrameRule::Kind::kCount) return is_usable(frame.part);
  uint64_t num_usable = is_usable(frame.other) ? 1 : 0;
  uint64_t num_required = 0;
  bool is_met = !frame.has_need || is_usable(frame.needed_other);
  for (const FrameRule::Key& key : frame.keys) {
    const bool has_member = HasMember(frame, key, has_text);
    if (key.is_required && !has_member) return false;
    num_required += key.is_required ? 1 : 0;
    num_usable += has_member ? 1 : 0;
    is_met = is_met || (has_member && is_usable(key.needed_value));
  }
  const uint64_t max = is_usable(frame.separator) ? frame.max : 1;
  // One member is the required one, and meets the need.
  const bool is_alone = max == 1 && num_required == 1 && frame.has_need;
  if (is_alone) {
    is_met = std::any_of(frame.keys.begin(), frame.keys.end(), [&](const FrameRule::Key& key) {
      return key.is_required && HasMember(frame, key, has_text) && is_usable(key.needed_value);
    });
  }
  return is_met && std::max<uint64_t>(frame.min, 1) <= std::min(num_usable, max) &&
         num_required <= max;
}

// Removes the members that have no text.
void TrimMembers(const std::vector<bool>& has_text, FrameRule* frame) {
  std::erase_if(frame->keys,
                [&](const FrameRule::Key& key) { return !HasMember(*frame, key, has_text); });
  const auto drop_never = [&](RuleId* rule) {
    if (*rule != kNoRule && !has_text[*rule]) *rule = kNoRule;
  };
  for (FrameRule::Key& key : frame->keys) drop_never(&key.needed_value);
  drop_never(&frame->other);
  drop_never(&frame->needed_other);
  if (frame->separator != kNoRule && !has_text[frame->separator]) {
    frame->separator = kNoRule;
    frame->max = std::min<uint32_t>(frame->max, 1);
  }
  if (frame->has_need && frame->max == 1) {
    // The only member is the one that meets it.
    std::erase_if(frame->keys,
                  [](const FrameRule::Key& key) { return key.needed_value == kNoRule; });
  }
}

// Removes rules that have no text, the calls of them, and nodes that lead to no text. False: the
// budget is used up.
bool Trim(RuleNfas* all) {
  std::vector<bool> has_text(all->rules.size());
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    // Callees have larger numbers, mostly: they come first, so that few rounds are needed.
    for (size_t rule = all->rules.size(); rule-- > 0;) {
      if (has_text[rule]) continue;
      const ByteNfa& nfa = all->rules[rule];
      if (!Budget::Spend(nfa.nodes.size() + nfa.frame.keys.size())) return false;
      has_text[rule] =
          nfa.IsFrame() ? HasText(nfa.frame, has_text) : ReachesFinal(nfa, has_text)[nfa.start];
      is_changed |= has_text[rule];
    }
  }
  for (ByteNfa& nfa : all->rules) {
    if (nfa.frame.kind == FrameRule::Kind::kMembers) TrimMembers(has_text, &nfa.frame);
    const std::vector<bool> reaches = ReachesFinal(nfa, has_text);
    for (Node& node : nfa.nodes) {
      std::erase_if(node.edges, [&](const ByteNfa::Edge& edge) { return !reaches[edge.target]; });
      std::erase_if(node.empties, [&](uint32_t to) { return !reaches[to]; });
      std::erase_if(node.calls, [&](const ByteNfa::CallEdge& call) {
        return !reaches[call.target] || !has_text[call.rule];
      });
    }
  }
  all->is_never = !has_text[all->root] && !all->accepts_empty;
  return true;
}

// Empty: the budget is used up.
std::vector<bool> FindNullable(const List<ByteNfa>& rules) {
  std::vector<bool> is_nullable(rules.size());
  const auto reaches_final = [&](const ByteNfa& nfa) {
    // Members are never empty. A part is repeated at least once, and may be empty.
    if (nfa.IsFrame()) return nfa.frame.part != kNoRule && is_nullable[nfa.frame.part];
    std::vector<bool> seen(nfa.nodes.size());
    List<uint32_t> open = {nfa.start};
    seen[nfa.start] = true;
    while (!open.empty()) {
      const Node& node = nfa.nodes[open.back()];
      open.pop_back();
      const auto visit = [&](uint32_t next) {
        if (!seen[next]) open.push_back(next);
        seen[next] = true;
      };
      for (const uint32_t next : node.empties) visit(next);
      for (const ByteNfa::CallEdge& call : node.calls) {
        if (is_nullable[call.rule]) visit(call.target);
      }
    }
    return static_cast<bool>(seen[nfa.final]);
  };
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    // As in Trim.
    for (size_t rule = rules.size(); rule-- > 0;) {
      if (is_nullable[rule]) continue;
      if (!Budget::Spend(rules[rule].nodes.size())) return {};
      if (!reaches_final(rules[rule])) continue;
      is_nullable[rule] = true;
      is_changed = true;
    }
  }
  return is_nullable;
}

// Every call of a rule with the empty text gets an empty edge beside it. If the rule itself has the
// empty text, its start region is doubled: the copy has nothing read yet and is not final.
void RemoveEmptyText(List<ByteNfa>* rules, const std::vector<bool>& is_nullable) {
  for (size_t rule = 0; rule < rules->size(); ++rule) {
    ByteNfa& nfa = (*rules)[rule];
    for (Node& node : nfa.nodes) {
      for (const ByteNfa::CallEdge& call : node.calls) {
        if (is_nullable[call.rule]) node.empties.push_back(call.target);
      }
    }
    if (!is_nullable[rule]) continue;
    if (nfa.IsFrame()) {
      nfa.frame.min = 1;  // the other parts may be empty
      continue;
    }
    // The new start does every first step of the old one, except to stop.
    Node start;
    for (const uint32_t first : EmptyClosure(nfa, nfa.start)) {
      const Node& node = nfa.nodes[first];
      start.edges.insert(start.edges.end(), node.edges.begin(), node.edges.end());
      start.calls.insert(start.calls.end(), node.calls.begin(), node.calls.end());
    }
    nfa.start = static_cast<uint32_t>(nfa.nodes.size());
    nfa.nodes.push_back(std::move(start));
  }
}

// Keeps the rules that the root reaches and numbers them anew.
void KeepReached(RuleNfas* all) {
  constexpr uint32_t kUnseen = ~uint32_t{0};
  List<uint32_t> number(all->rules.size(), kUnseen);
  List<uint32_t> reached = {all->root};
  number[all->root] = 0;
  const auto renumber = [&](RuleId* rule) {
    if (number[*rule] == kUnseen) {
      number[*rule] = static_cast<uint32_t>(reached.size());
      reached.push_back(*rule);
    }
    *rule = number[*rule];
  };
  for (size_t i = 0; i < reached.size(); ++i) {
    ByteNfa& nfa = all->rules[reached[i]];
    nfa.frame.ForEachCallee(renumber);
    for (Node& node : nfa.nodes) {
      for (ByteNfa::CallEdge& call : node.calls) renumber(&call.rule);
    }
  }
  List<ByteNfa> kept;
  for (const uint32_t rule : reached) kept.push_back(std::move(all->rules[rule]));
  all->rules = std::move(kept);
  all->root = 0;
}

}  // namespace

absl::StatusOr<RuleNfas> BuildRuleNfas(const GrammarRules& rules, const ByteSet& bytes) {
  SPECD_CHECK(rules.root() != kNoRule);
  const std::vector<bool> inlined = FindInlinedRules(rules);
  RuleNfas all;
  all.root = rules.root();
  ExtraRules extra(rules);
  size_t num_nodes = 0;
  const auto build = [&](ExprId expr) -> absl::Status {
    NfaOptions options = {.nodes_max = kNfaNodesMax - num_nodes, .extra = &extra};
    options.inlined = &inlined;
    absl::StatusOr<ByteNfa> nfa = BuildNfa(rules, expr, options);
    if (!nfa.ok()) return TooLarge();
    num_nodes += nfa->nodes.size();
    if (num_nodes + 2 > kNfaNodesMax) return TooLarge();
    all.rules.push_back(*std::move(nfa));
    return absl::OkStatus();
  };
  for (RuleId rule = 0; rule < rules.num_rules(); ++rule) {
    const Budget::Place place(rules.name(rule));
    // Nothing calls an inlined rule.
    const bool is_needed = rule == rules.root() || !inlined[rule];
    if (absl::Status status = build(is_needed ? rules.body(rule) : rules.Never()); !status.ok()) {
      return status;
    }
  }
  // A part may have repetitions of its own, which add to the list.
  for (size_t i = 0; i < extra.rules().size(); ++i) {
    const ExtraRules::Rule rule = extra.rules()[i];
    if (rule.frame.kind != FrameRule::Kind::kNone) {
      all.rules.push_back({.nodes = List<Node>(2), .start = 0, .final = 1, .frame = rule.frame});
    } else if (absl::Status status = build(rule.body); !status.ok()) {
      return status;
    }
  }
  KeepReached(&all);
  for (ByteNfa& nfa : all.rules) KeepBytes(bytes, &nfa);
  const std::vector<bool> is_nullable = FindNullable(all.rules);
  if (is_nullable.empty()) return Budget::Refusal();
  all.accepts_empty = is_nullable[all.root];
  RemoveEmptyText(&all.rules, is_nullable);
  if (!Trim(&all)) return Budget::Refusal();
  if (!RemoveLeftRecursion(&all.rules)) return TooLarge();
  if (!Trim(&all)) return Budget::Refusal();
  return all;
}

}  // namespace specd::grammar
