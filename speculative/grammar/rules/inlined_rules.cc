#include "speculative/grammar/rules/inlined_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "speculative/grammar/base/counted.h"

namespace specd::grammar {
namespace {

// A rule of at most this many expressions, with the rules that it calls, takes the place of its
// calls.
constexpr size_t kInlinedExprsMax = 8;
// Rules within rules that take the place of calls. Building recurses as deep.
constexpr size_t kInlinedDepthMax = 32;

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
    List<RuleId> calls;
    size_t next = 0;
  };

  List<RuleId> CallsOf(RuleId rule) {
    List<RuleId> calls;
    List<ExprId> open = {rules_.body(rule)};
    size_t num_exprs = 0;
    while (!open.empty()) {
      const Expr& expr = rules_.expr(open.back());
      open.pop_back();
      const bool is_large = expr.kind == ExprKind::kAutomaton || expr.kind == ExprKind::kMembers;
      num_exprs += is_large ? kInlinedExprsMax + 1 : 1;
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
    List<Frame> stack;
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
  List<State> rule_state_;
  List<size_t> num_calls_;
  List<size_t> num_exprs_;  // with those of callees; counted no further than it matters
  List<size_t> depth_;
  std::vector<bool> is_recursive_;
};

}  // namespace

std::vector<bool> FindInlinedRules(const GrammarRules& rules) {
  return CallCounts(rules).Inlined();
}

}  // namespace specd::grammar
