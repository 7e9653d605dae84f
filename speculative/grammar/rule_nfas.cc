#include "speculative/grammar/rule_nfas.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "absl/functional/function_ref.h"
#include "fmt/format.h"
#include "kernels/core/check.h"

namespace specd::grammar {
namespace {

using Node = ByteNfa::Node;

// A rule of at most this many expressions, with the rules that it calls, takes the place of its
// calls.
constexpr size_t kInlinedExprsMax = 8;
// Rules within rules that take the place of calls. Building recurses as deep.
constexpr size_t kInlinedDepthMax = 32;

absl::Status TooLarge() {
  return absl::ResourceExhaustedError(
      fmt::format("the grammar needs more than {} nodes: shorten its repetitions", kNfaNodesMax));
}

// ---- calls between rules ------------------------------------------------------------------------

// Calls in the expressions of the rules, before anything is built.
class CallCounts {
 public:
  explicit CallCounts(const GrammarRules& rules) : rules_(rules), rule_state_(rules.num_rules()) {
    num_calls_.resize(rules.num_rules());
    is_recursive_.resize(rules.num_rules());
    num_exprs_.resize(rules.num_rules());
    depth_.resize(rules.num_rules());
    Visit(rules.root());
  }

  // A rule that is called once, or is small, and does not lead back to itself.
  std::vector<bool> Inlined() const {
    std::vector<bool> inlined(rules_.num_rules());
    for (RuleId rule = 0; rule < inlined.size(); ++rule) {
      inlined[rule] = !is_recursive_[rule] && rule != rules_.root() &&
                      depth_[rule] < kInlinedDepthMax &&
                      (num_calls_[rule] == 1 || num_exprs_[rule] <= kInlinedExprsMax);
    }
    return inlined;
  }

 private:
  enum class State : uint8_t { kNew, kOpen, kDone };
  struct Frame {
    RuleId rule;
    std::vector<RuleId> calls;
    size_t next = 0;
  };

  std::vector<RuleId> CallsOf(RuleId rule) {
    std::vector<RuleId> calls;
    std::vector<ExprId> open = {rules_.body(rule)};
    size_t num_exprs = 0;
    while (!open.empty()) {
      const Expr& expr = rules_.expr(open.back());
      open.pop_back();
      num_exprs += expr.kind == ExprKind::kAutomaton ? kInlinedExprsMax + 1 : 1;
      // Each copy of a repetition has nodes of its own.
      if (expr.kind == ExprKind::kRepeat) {
        num_exprs += expr.max == kUnbounded ? expr.min : expr.max;
      }
      if (expr.kind == ExprKind::kCall) calls.push_back(expr.payload);
      open.insert(open.end(), expr.parts.begin(), expr.parts.end());
    }
    num_exprs_[rule] = num_exprs;
    return calls;
  }

  // Depth first without recursion. A call of a rule that is still open makes every rule on the way
  // recursive.
  void Visit(RuleId root) {
    std::vector<Frame> stack;
    const auto open = [&](RuleId rule) {
      rule_state_[rule] = State::kOpen;
      stack.push_back({.rule = rule, .calls = CallsOf(rule)});
    };
    open(root);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (frame.next == frame.calls.size()) {
        Close(frame);
        stack.pop_back();
        continue;
      }
      const RuleId callee = frame.calls[frame.next++];
      ++num_calls_[callee];
      if (rule_state_[callee] == State::kNew) {
        open(callee);
      } else if (rule_state_[callee] == State::kOpen) {
        for (size_t i = stack.size(); i-- > 0;) {
          is_recursive_[stack[i].rule] = true;
          if (stack[i].rule == callee) break;
        }
      }
    }
  }

  // Every callee is closed, or leads back here and takes no call's place.
  void Close(const Frame& frame) {
    rule_state_[frame.rule] = State::kDone;
    for (const RuleId callee : frame.calls) {
      const size_t total = num_exprs_[frame.rule] + num_exprs_[callee];
      num_exprs_[frame.rule] = std::min(total, kInlinedExprsMax + 1);
      if (depth_[callee] < kInlinedDepthMax) {
        depth_[frame.rule] = std::max(depth_[frame.rule], depth_[callee] + 1);
      }
    }
  }

  const GrammarRules& rules_;
  std::vector<State> rule_state_;
  std::vector<size_t> num_calls_;
  std::vector<size_t> num_exprs_;  // with those of callees; counted no further than it matters
  std::vector<size_t> depth_;
  std::vector<bool> is_recursive_;
};

// ---- passes over the automata -------------------------------------------------------------------

std::vector<uint32_t> EmptyClosure(const ByteNfa& nfa, uint32_t node) {
  std::vector<uint32_t> closure = {node};
  std::vector<bool> seen(nfa.nodes.size());
  seen[node] = true;
  for (size_t i = 0; i < closure.size(); ++i) {
    for (const uint32_t next : nfa.nodes[closure[i]].empties) {
      if (!seen[next]) closure.push_back(next);
      seen[next] = true;
    }
  }
  return closure;
}

// The nodes of `nfa` from which its final node can be reached, if only calls of `is_usable` rules
// return.
std::vector<bool> ReachesFinal(const ByteNfa& nfa, const std::vector<bool>& is_usable) {
  // The nodes before node i are before[begins[i]] up to before[begins[i + 1]].
  std::vector<uint32_t> begins(nfa.nodes.size() + 1);
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
  std::vector<uint32_t> before(begins.back());
  for_each([&](uint32_t from, uint32_t to) { before[--begins[to]] = from; });
  std::vector<bool> reaches(nfa.nodes.size());
  std::vector<uint32_t> open = {nfa.final};
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

// Removes rules that have no text, the calls of them, and nodes that lead to no text.
void Trim(RuleNfas* all) {
  std::vector<bool> has_text(all->rules.size());
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    // Callees have larger numbers, mostly: they come first, so that few rounds are needed.
    for (size_t rule = all->rules.size(); rule-- > 0;) {
      if (has_text[rule]) continue;
      has_text[rule] = ReachesFinal(all->rules[rule], has_text)[all->rules[rule].start];
      is_changed |= has_text[rule];
    }
  }
  for (ByteNfa& nfa : all->rules) {
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
}

std::vector<bool> FindNullable(const std::vector<ByteNfa>& rules) {
  std::vector<bool> is_nullable(rules.size());
  const auto reaches_final = [&](const ByteNfa& nfa) {
    std::vector<bool> seen(nfa.nodes.size());
    std::vector<uint32_t> open = {nfa.start};
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
      if (is_nullable[rule] || !reaches_final(rules[rule])) continue;
      is_nullable[rule] = true;
      is_changed = true;
    }
  }
  return is_nullable;
}

// Every call of a rule with the empty text gets an empty edge beside it. If the rule itself has the
// empty text, its start region is doubled: the copy has nothing read yet and is not final.
void RemoveEmptyText(std::vector<ByteNfa>* rules, const std::vector<bool>& is_nullable) {
  for (size_t rule = 0; rule < rules->size(); ++rule) {
    ByteNfa& nfa = (*rules)[rule];
    for (Node& node : nfa.nodes) {
      for (const ByteNfa::CallEdge& call : node.calls) {
        if (is_nullable[call.rule]) node.empties.push_back(call.target);
      }
    }
    if (!is_nullable[rule]) continue;
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

// ---- left recursion -----------------------------------------------------------------------------

class LeftRecursion {
 public:
  explicit LeftRecursion(std::vector<ByteNfa>* rules) : rules_(*rules) {
    first_calls_.resize(rules_.size());
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      for (const uint32_t first : EmptyClosure(rules_[rule], rules_[rule].start)) {
        for (const ByteNfa::CallEdge& call : rules_[rule].nodes[first].calls) {
          first_calls_[rule].push_back(call);
        }
      }
    }
    FindGroups();
  }

  absl::Status Remove() {
    std::vector<std::pair<size_t, ByteNfa>> rebuilt;
    size_t num_nodes = 0;
    for (const std::vector<RuleId>& group : groups_) {
      for (const RuleId goal : group) {
        rebuilt.emplace_back(goal, Rebuild(goal, group));
        num_nodes += rebuilt.back().second.nodes.size();
        if (num_nodes > kNfaNodesMax) return TooLarge();
      }
    }
    for (auto& [rule, nfa] : rebuilt) rules_[rule] = std::move(nfa);
    return absl::OkStatus();
  }

 private:
  // Tarjan's strongly connected components over first calls, without recursion. Only components
  // that hold a cycle are kept.
  void FindGroups() {
    constexpr uint32_t kUnseen = ~uint32_t{0};
    std::vector<uint32_t> order(rules_.size(), kUnseen);
    std::vector<uint32_t> low(rules_.size());
    std::vector<bool> is_open(rules_.size());
    std::vector<RuleId> component;
    uint32_t num_seen = 0;
    struct Frame {
      RuleId rule;
      size_t next = 0;
    };
    for (RuleId root = 0; root < rules_.size(); ++root) {
      if (order[root] != kUnseen) continue;
      std::vector<Frame> stack;
      const auto open = [&](RuleId rule) {
        order[rule] = low[rule] = num_seen++;
        is_open[rule] = true;
        component.push_back(rule);
        stack.push_back({rule});
      };
      open(root);
      while (!stack.empty()) {
        const RuleId rule = stack.back().rule;
        if (stack.back().next < first_calls_[rule].size()) {
          const RuleId callee = first_calls_[rule][stack.back().next++].rule;
          if (order[callee] == kUnseen) {
            open(callee);
          } else if (is_open[callee]) {
            low[rule] = std::min(low[rule], order[callee]);
          }
          continue;
        }
        stack.pop_back();
        if (!stack.empty()) {
          low[stack.back().rule] = std::min(low[stack.back().rule], low[rule]);
        }
        if (low[rule] != order[rule]) continue;
        std::vector<RuleId> group;
        do {
          group.push_back(component.back());
          is_open[component.back()] = false;
          component.pop_back();
        } while (group.back() != rule);
        if (group.size() > 1 || CallsFirst(rule, rule)) groups_.push_back(std::move(group));
      }
    }
  }

  bool CallsFirst(RuleId rule, RuleId callee) const {
    return std::any_of(first_calls_[rule].begin(), first_calls_[rule].end(),
                       [&](const ByteNfa::CallEdge& call) { return call.rule == callee; });
  }

  // The automaton of `goal`: it reads a text of some rule of the group that begins with no call of
  // the group. Then, as long as a rule of the group may begin with the rule that was read, it goes
  // on in that rule behind the call. It may stop where the goal itself was read.
  ByteNfa Rebuild(RuleId goal, const std::vector<RuleId>& group) const {
    ByteNfa result;
    std::map<RuleId, uint32_t> base;  // of each rule's copied nodes
    result.nodes.resize(2);
    result.start = 0;
    result.final = 1;
    for (const RuleId rule : group) {
      base[rule] = static_cast<uint32_t>(result.nodes.size());
      for (Node node : rules_[rule].nodes) {
        for (ByteNfa::Edge& edge : node.edges) edge.target += base[rule];
        for (ByteNfa::CallEdge& call : node.calls) call.target += base[rule];
        for (uint32_t& to : node.empties) to += base[rule];
        result.nodes.push_back(std::move(node));
      }
    }
    for (const RuleId rule : group) {
      for (const uint32_t first : EmptyClosure(rules_[rule], rules_[rule].start)) {
        for (ByteNfa::Edge edge : rules_[rule].nodes[first].edges) {
          edge.target += base[rule];
          result.nodes[result.start].edges.push_back(edge);
        }
      }
      for (ByteNfa::CallEdge call : first_calls_[rule]) {
        call.target += base[rule];
        const auto inner = base.find(call.rule);
        if (inner == base.end()) {
          result.nodes[result.start].calls.push_back(call);
        } else {
          const uint32_t end = inner->second + rules_[call.rule].final;
          result.nodes[end].empties.push_back(call.target);
        }
      }
    }
    result.nodes[base[goal] + rules_[goal].final].empties.push_back(result.final);
    return result;
  }

  std::vector<ByteNfa>& rules_;
  std::vector<std::vector<ByteNfa::CallEdge>> first_calls_;  // [rule]
  std::vector<std::vector<RuleId>> groups_;
};

// Keeps the rules that the root reaches and numbers them anew.
void KeepReached(RuleNfas* all) {
  constexpr uint32_t kUnseen = ~uint32_t{0};
  std::vector<uint32_t> number(all->rules.size(), kUnseen);
  std::vector<uint32_t> reached = {all->root};
  number[all->root] = 0;
  for (size_t i = 0; i < reached.size(); ++i) {
    for (Node& node : all->rules[reached[i]].nodes) {
      for (ByteNfa::CallEdge& call : node.calls) {
        if (number[call.rule] == kUnseen) {
          number[call.rule] = static_cast<uint32_t>(reached.size());
          reached.push_back(call.rule);
        }
        call.rule = number[call.rule];
      }
    }
  }
  std::vector<ByteNfa> kept;
  for (const uint32_t rule : reached) kept.push_back(std::move(all->rules[rule]));
  all->rules = std::move(kept);
  all->root = 0;
}

}  // namespace

absl::StatusOr<RuleNfas> BuildRuleNfas(const GrammarRules& rules, const ByteSet& bytes) {
  SPECD_CHECK(rules.root() != kNoRule);
  const std::vector<bool> inlined = CallCounts(rules).Inlined();
  RuleNfas all;
  all.root = rules.root();
  RepeatRules repeats;
  size_t num_nodes = 0;
  const auto build = [&](ExprId expr) -> absl::Status {
    NfaOptions options = {.nodes_max = kNfaNodesMax - num_nodes, .repeats = &repeats};
    options.inlined = &inlined;
    absl::StatusOr<ByteNfa> nfa = BuildNfa(rules, expr, options);
    if (!nfa.ok()) return TooLarge();
    num_nodes += nfa->nodes.size();
    if (num_nodes + 2 > kNfaNodesMax) return TooLarge();
    all.rules.push_back(*std::move(nfa));
    return absl::OkStatus();
  };
  for (RuleId rule = 0; rule < rules.num_rules(); ++rule) {
    // Nothing calls an inlined rule.
    const bool is_needed = rule == rules.root() || !inlined[rule];
    if (absl::Status status = build(is_needed ? rules.body(rule) : rules.Never()); !status.ok()) {
      return status;
    }
  }
  // A part may have repetitions of its own, which add to the list.
  for (size_t i = 0; i < repeats.parts.size(); ++i) {
    if (absl::Status status = build(repeats.parts[i]); !status.ok()) return status;
  }
  KeepReached(&all);
  for (ByteNfa& nfa : all.rules) KeepBytes(bytes, &nfa);
  const std::vector<bool> is_nullable = FindNullable(all.rules);
  all.accepts_empty = is_nullable[all.root];
  RemoveEmptyText(&all.rules, is_nullable);
  Trim(&all);
  if (absl::Status status = LeftRecursion(&all.rules).Remove(); !status.ok()) return status;
  Trim(&all);
  return all;
}

}  // namespace specd::grammar
