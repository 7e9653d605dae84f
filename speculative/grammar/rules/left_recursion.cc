#include "speculative/grammar/rules/left_recursion.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {
namespace {

using Node = ByteNfa::Node;

class LeftRecursion {
 public:
  explicit LeftRecursion(List<ByteNfa>* rules) : rules_(*rules) {
    first_calls_.resize(rules_.size());
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      const FrameRule& frame = rules_[rule].frame;
      if (frame.part != kNoRule) first_calls_[rule].push_back({frame.part, rules_[rule].final});
      for (const uint32_t first : EmptyClosure(rules_[rule], rules_[rule].start)) {
        for (const ByteNfa::CallEdge& call : rules_[rule].nodes[first].calls) {
          first_calls_[rule].push_back(call);
        }
      }
    }
    FindGroups();
  }

  // Writes counted repetitions that recurse on the left as a call of the part and a repetition of
  // one less, which does not begin its rule any more. False: there are none.
  bool ExpandCounts() {
    bool is_changed = false;
    for (const List<RuleId>& group : groups_) {
      for (const RuleId rule : group) {
        if (!rules_[rule].IsFrame()) continue;
        is_changed = true;
        const FrameRule frame = std::exchange(rules_[rule].frame, {});
        ByteNfa& nfa = rules_[rule];
        nfa.nodes.emplace_back();
        nfa.nodes[nfa.start].calls.push_back({frame.part, 2});
        if (frame.min <= 1) nfa.nodes[2].empties.push_back(nfa.final);
        if (frame.max == 1) continue;
        FrameRule rest = frame;
        rest.min = std::max<uint32_t>(frame.min, 2) - 1;
        if (rest.max != kUnbounded) --rest.max;
        nfa.nodes[2].calls.push_back({static_cast<RuleId>(rules_.size()), nfa.final});
        rules_.push_back({.nodes = List<Node>(2), .start = 0, .final = 1, .frame = rest});
      }
    }
    return is_changed;
  }

  bool Remove() {
    List<std::pair<size_t, ByteNfa>> rebuilt;
    size_t num_nodes = 0;
    for (const List<RuleId>& group : groups_) {
      for (const RuleId goal : group) {
        rebuilt.emplace_back(goal, Rebuild(goal, group));
        num_nodes += rebuilt.back().second.nodes.size();
        if (num_nodes > kNfaNodesMax) return false;
      }
    }
    for (auto& [rule, nfa] : rebuilt) rules_[rule] = std::move(nfa);
    return true;
  }

 private:
  // Tarjan's strongly connected components over first calls, without recursion. Only components
  // that hold a cycle are kept.
  void FindGroups() {
    constexpr uint32_t kUnseen = ~uint32_t{0};
    List<uint32_t> order(rules_.size(), kUnseen);
    List<uint32_t> low(rules_.size());
    std::vector<bool> is_open(rules_.size());
    List<RuleId> component;
    uint32_t num_seen = 0;
    struct Frame {
      RuleId rule;
      size_t next = 0;
    };
    for (RuleId root = 0; root < rules_.size(); ++root) {
      if (order[root] != kUnseen) continue;
      List<Frame> stack;
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
        List<RuleId> group;
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
  // on in that rule after the call. It may stop where the goal itself was read.
  ByteNfa Rebuild(RuleId goal, const List<RuleId>& group) const {
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

  List<ByteNfa>& rules_;
  List<List<ByteNfa::CallEdge>> first_calls_;  // [rule]
  List<List<RuleId>> groups_;
};

}  // namespace

bool RemoveLeftRecursion(List<ByteNfa>* rules) {
  LeftRecursion recursion(rules);
  return recursion.ExpandCounts() ? LeftRecursion(rules).Remove() : recursion.Remove();
}

}  // namespace specd::grammar
