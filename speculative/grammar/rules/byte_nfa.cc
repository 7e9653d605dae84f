#include "speculative/grammar/rules/byte_nfa.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "fmt/format.h"
#include "kernels/core/check.h"
#include "speculative/grammar/automata/char_tree.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"

namespace specd::grammar {
namespace {

// Repetitions with more copies are counted as they are met. A byte and a call cost one node for
// each copy, so more of them are written out: they need no frame, and states have fewer items.
constexpr uint32_t kCopiesInPlaceMax = 4;
constexpr uint32_t kLeavesInPlaceMax = 64;

class NfaBuilder {
 public:
  NfaBuilder(const GrammarRules& rules, const NfaOptions& options)
      : rules_(rules), options_(options) {}

  absl::StatusOr<ByteNfa> Build(ExprId expr) {
    nfa_.start = AddNode();
    nfa_.final = AddNode();
    Compile(expr, nfa_.start, nfa_.final);
    if (is_full_) {
      return absl::ResourceExhaustedError(fmt::format(
          "the grammar needs more than {} nodes: shorten its repetitions", options_.nodes_max));
    }
    return std::move(nfa_);
  }

 private:
  uint32_t AddNode() {
    if (nfa_.nodes.size() >= options_.nodes_max) is_full_ = true;
    if (!is_full_ || nfa_.nodes.empty()) nfa_.nodes.emplace_back();
    return static_cast<uint32_t>(nfa_.nodes.size() - 1);
  }
  void AddEdge(uint32_t from, uint8_t first, uint8_t last, uint32_t to) {
    nfa_.nodes[from].edges.push_back({first, last, to});
  }
  void AddEmpty(uint32_t from, uint32_t to) {
    if (from != to) nfa_.nodes[from].empties.push_back(to);
  }

  // Adds paths from `from` to `to` that spell the expression, and no other path.
  void Compile(ExprId id, uint32_t from, uint32_t to) {
    if (is_full_) return;
    const Expr& expr = rules_.expr(id);
    switch (expr.kind) {
      case ExprKind::kEmpty:
        return AddEmpty(from, to);
      case ExprKind::kNever:
        return;
      case ExprKind::kBytes:
        return CompileBytes(rules_.bytes(expr), from, to);
      case ExprKind::kChars:
        return CompileChars(expr, from, to);
      case ExprKind::kLiteral:
        return CompileLiteral(rules_.literal(expr), from, to);
      case ExprKind::kSequence:
        return CompileSequence(expr.parts, from, to);
      case ExprKind::kAnyOf:
        for (const ExprId part : expr.parts) Compile(part, from, to);
        return;
      case ExprKind::kRepeat:
        return CompileRepeat(expr, from, to);
      case ExprKind::kCall:
        return CompileCall(expr.payload, from, to);
      case ExprKind::kAutomaton:
        return CompileAutomaton(rules_.automaton(expr), from, to);
      case ExprKind::kMembers:
        SPECD_CHECK(options_.extra != nullptr);
        nfa_.nodes[from].calls.push_back({options_.extra->OfMembers(id), to});
        return;
    }
  }

  void CompileBytes(const ByteSet& set, uint32_t from, uint32_t to) {
    for (int first = 0; first < 256; ++first) {
      if (!set.Has(static_cast<uint8_t>(first))) continue;
      int last = first;
      while (last < 255 && set.Has(static_cast<uint8_t>(last + 1))) ++last;
      AddEdge(from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), to);
      first = last;
    }
  }

  void CompileLiteral(std::string_view text, uint32_t from, uint32_t to) {
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t next = i + 1 == text.size() ? to : AddNode();
      AddEdge(from, static_cast<uint8_t>(text[i]), static_cast<uint8_t>(text[i]), next);
      from = next;
    }
  }

  void CompileChars(const Expr& expr, uint32_t from, uint32_t to) {
    const auto [known, is_new] = trees_.try_emplace(expr.payload, nullptr);
    if (is_new) known->second = std::make_unique<const CharTree>(rules_.chars(expr));
    const List<CharTree::Node>& tree = known->second->nodes();
    List<uint32_t> nodes = {from};
    while (nodes.size() < tree.size()) nodes.push_back(AddNode());
    if (is_full_) return;
    for (size_t i = 0; i < tree.size(); ++i) {
      for (const CharTree::Edge& edge : tree[i]) {
        AddEdge(nodes[i], edge.first, edge.last,
                edge.target == CharTree::kDone ? to : nodes[edge.target]);
      }
    }
  }

  void CompileSequence(std::span<const ExprId> parts, uint32_t from, uint32_t to) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const uint32_t next = i + 1 == parts.size() ? to : AddNode();
      Compile(parts[i], from, next);
      from = next;
    }
  }

  void CompileRepeat(const Expr& expr, uint32_t from, uint32_t to) {
    const ExprId part = expr.parts[0];
    const uint32_t copies = expr.max == kUnbounded ? expr.min : expr.max;
    const ExprKind kind = rules_.expr(part).kind;
    const bool is_leaf = kind == ExprKind::kBytes || kind == ExprKind::kCall;
    if (options_.extra != nullptr && copies > (is_leaf ? kLeavesInPlaceMax : kCopiesInPlaceMax)) {
      const RuleId rule = options_.extra->OfCount(part, std::max(expr.min, uint32_t{1}), expr.max);
      if (expr.min == 0) AddEmpty(from, to);
      nfa_.nodes[from].calls.push_back({rule, to});
      return;
    }
    for (uint32_t i = 0; i < copies && !is_full_; ++i) {
      if (i >= expr.min) AddEmpty(from, to);
      const uint32_t next = AddNode();
      Compile(part, from, next);
      from = next;
    }
    if (expr.max == kUnbounded) {
      const uint32_t loop = AddNode();
      AddEmpty(from, loop);
      Compile(part, loop, loop);
      from = loop;
    }
    AddEmpty(from, to);
  }

  void CompileCall(RuleId rule, uint32_t from, uint32_t to) {
    if (options_.inlined != nullptr && (*options_.inlined)[rule]) {
      return Compile(rules_.body(rule), from, to);
    }
    nfa_.nodes[from].calls.push_back({rule, to});
  }

  void CompileAutomaton(const ByteDfa& dfa, uint32_t from, uint32_t to) {
    List<uint32_t> nodes(dfa.states.size());
    for (uint32_t& node : nodes) node = AddNode();
    if (is_full_) return;
    AddEmpty(from, nodes[0]);
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const ByteDfa::Edge& edge : dfa.states[i].edges) {
        AddEdge(nodes[i], edge.first, edge.last, nodes[edge.target]);
      }
      if (dfa.states[i].accepting) AddEmpty(nodes[i], to);
    }
  }

  const GrammarRules& rules_;
  const NfaOptions& options_;
  ByteNfa nfa_;
  HashMap<uint32_t, std::unique_ptr<const CharTree>> trees_;  // by the payload of the expression
  bool is_full_ = false;
};

}  // namespace

List<uint32_t> EmptyClosure(const ByteNfa& nfa, uint32_t node) {
  List<uint32_t> closure = {node};
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

absl::StatusOr<ByteNfa> BuildNfa(const GrammarRules& rules, ExprId expr,
                                 const NfaOptions& options) {
  return NfaBuilder(rules, options).Build(expr);
}

void KeepBytes(const ByteSet& bytes, ByteNfa* nfa) {
  if (bytes == ByteSet::All()) return;
  for (FrameRule::Key& key : nfa->frame.keys) {
    key.is_spelled = std::all_of(key.text.begin(), key.text.end(),
                                 [&](char byte) { return bytes.Has(static_cast<uint8_t>(byte)); });
  }
  for (ByteNfa::Node& node : nfa->nodes) {
    List<ByteNfa::Edge> kept;
    for (const ByteNfa::Edge& edge : node.edges) {
      bool is_open = false;
      for (int byte = edge.first; byte <= edge.last; ++byte) {
        const uint8_t value = byte;
        const bool has = bytes.Has(value);
        if (has && is_open) kept.back().last = value;
        if (has && !is_open) kept.push_back({value, value, edge.target});
        is_open = has;
      }
    }
    node.edges = std::move(kept);
  }
}

}  // namespace specd::grammar
