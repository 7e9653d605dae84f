#include "speculative/grammar/automata/dfa_operations.h"

#include <algorithm>
#include <utility>

#include "speculative/grammar/automata/dfa_minimizer.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/id_table.h"

namespace specd::grammar {
namespace {

constexpr uint32_t kDead = ByteDfa::kDead;
// Overlap makes no automaton, only pairs: it may look at more of them. Estimate: 60 MB.
constexpr size_t kOverlapPairsMax = size_t{1} << 21;

// EdgeCursor reads the edges of one state from byte 0 to 255.
class EdgeCursor {
 public:
  struct Stretch {
    uint32_t target = kDead;
    int last = 255;  // every byte up to it has this target
  };

  EdgeCursor(const ByteDfa& dfa, uint32_t state) {
    if (state != kDead) edges_ = dfa.states[state].edges;
  }

  // REQUIRES: `byte` does not fall from call to call.
  Stretch At(int byte) {
    while (!edges_.empty() && edges_.front().last < byte) edges_ = edges_.subspan(1);
    if (edges_.empty()) return {};
    const ByteDfa::Edge& edge = edges_.front();
    if (byte < edge.first) return {.target = kDead, .last = edge.first - 1};
    return {.target = edge.target, .last = edge.last};
  }

 private:
  std::span<const ByteDfa::Edge> edges_;
};

enum class Operation { kIntersect, kUnite, kSubtract };

// Product runs two automata side by side: its states are the pairs that some text reaches and that
// may still accept.
class Product {
 public:
  Product(const ByteDfa& a, const ByteDfa& b, Operation operation)
      : a_(a), b_(b), operation_(operation) {}

  absl::StatusOr<ByteDfa> Build() {
    Intern({a_.IsEmpty() ? kDead : 0, b_.IsEmpty() ? kDead : 0});
    ByteDfa result;
    size_t num_edges = 0;
    for (size_t number = 0; number < pairs_.size(); ++number) {
      ByteDfa::State& state = result.states.emplace_back();
      state.accepting = IsAccepting(pairs_[number]);
      ForEachStretch(pairs_[number], [&](uint8_t first, uint8_t last, const Pair& targets) {
        const uint32_t target = Intern(targets);
        if (target == kDead) return;
        AppendEdge({.first = first, .last = last, .target = target}, &state.edges);
      });
      num_edges += state.edges.size();
      if (!Budget::Spend(8 + 4 * state.edges.size())) return Budget::Refusal();
      if (absl::Status status = CheckGrowth(pairs_.size(), num_edges); !status.ok()) return status;
    }
    return MinimizeWithinLimits(result);
  }

  // True if a pair accepts, or if there are too many pairs to tell.
  bool MayAccept() {
    Intern({a_.IsEmpty() ? kDead : 0, b_.IsEmpty() ? kDead : 0});
    for (size_t number = 0; number < pairs_.size(); ++number) {
      if (IsAccepting(pairs_[number])) return true;
      if (pairs_.size() > kOverlapPairsMax) return true;
      ForEachStretch(pairs_[number],
                     [&](uint8_t, uint8_t, const Pair& targets) { Intern(targets); });
    }
    return false;
  }

 private:
  struct Pair {
    uint32_t a = kDead;
    uint32_t b = kDead;
  };

  template <typename Function>
  void ForEachStretch(const Pair pair, const Function& function) {
    EdgeCursor a(a_, pair.a);
    EdgeCursor b(b_, pair.b);
    for (int byte = 0; byte < 256;) {
      const EdgeCursor::Stretch in_a = a.At(byte);
      const EdgeCursor::Stretch in_b = b.At(byte);
      const int last = std::min(in_a.last, in_b.last);
      function(static_cast<uint8_t>(byte), static_cast<uint8_t>(last),
               Pair{.a = in_a.target, .b = in_b.target});
      byte = last + 1;
    }
  }

  // The number of a pair, or kDead for a pair that can accept nothing.
  uint32_t Intern(Pair pair) {
    switch (operation_) {
      case Operation::kIntersect:
        if (pair.a == kDead || pair.b == kDead) return kDead;
        break;
      case Operation::kUnite:
        if (pair.a == kDead && pair.b == kDead) return kDead;
        break;
      case Operation::kSubtract:
        if (pair.a == kDead) return kDead;
        break;
    }
    const uint32_t hash = IdTable::Mix(uint64_t{pair.a} << 32 | pair.b);
    const uint32_t known = numbers_.Find(
        hash, [&](uint32_t i) { return pairs_[i].a == pair.a && pairs_[i].b == pair.b; });
    if (known != IdTable::kNone) return known;
    const uint32_t number = pairs_.size();
    numbers_.Reserve();
    pairs_.push_back(pair);
    numbers_.Insert(hash, number);
    return number;
  }

  bool IsAccepting(const Pair& pair) const {
    const bool in_a = pair.a != kDead && a_.states[pair.a].accepting;
    const bool in_b = pair.b != kDead && b_.states[pair.b].accepting;
    switch (operation_) {
      case Operation::kIntersect:
        return in_a && in_b;
      case Operation::kUnite:
        return in_a || in_b;
      case Operation::kSubtract:
        return in_a && !in_b;
    }
    return false;
  }

  const ByteDfa& a_;
  const ByteDfa& b_;
  const Operation operation_;
  IdTable numbers_;  // of pairs_
  List<Pair> pairs_;
};

}  // namespace

absl::StatusOr<ByteDfa> Intersect(const ByteDfa& a, const ByteDfa& b) {
  return Product(a, b, Operation::kIntersect).Build();
}

absl::StatusOr<ByteDfa> Unite(const ByteDfa& a, const ByteDfa& b) {
  return Product(a, b, Operation::kUnite).Build();
}

absl::StatusOr<ByteDfa> Subtract(const ByteDfa& a, const ByteDfa& b) {
  return Product(a, b, Operation::kSubtract).Build();
}

ByteDfa SubtractTexts(const ByteDfa& a, std::span<const std::string> texts) {
  if (a.IsEmpty()) return {};
  struct Node {
    uint32_t state = 0;                           // of a, after the same bytes
    List<std::pair<uint8_t, uint32_t>> children;  // sorted
    bool is_text = false;
  };
  List<Node> nodes(1);
  for (const std::string& text : texts) {
    uint32_t at = 0;
    for (const char character : text) {
      const uint8_t byte = character;
      const uint32_t state = a.Step(nodes[at].state, byte);
      if (state == kDead) {
        at = kDead;  // no text of `a` begins so
        break;
      }
      List<std::pair<uint8_t, uint32_t>>& children = nodes[at].children;
      const auto place =
          std::lower_bound(children.begin(), children.end(), std::pair<uint8_t, uint32_t>(byte, 0));
      if (place != children.end() && place->first == byte) {
        at = place->second;
        continue;
      }
      const uint32_t child = nodes.size();
      children.insert(place, {byte, child});
      nodes.push_back({.state = state, .children = {}, .is_text = false});
      at = child;
    }
    if (at != kDead) nodes[at].is_text = true;
  }
  const uint32_t base = nodes.size();
  ByteDfa result;
  for (const Node& node : nodes) {
    const ByteDfa::State& state = a.states[node.state];
    ByteDfa::State& made = result.states.emplace_back();
    made.accepting = state.accepting && !node.is_text;
    auto child = node.children.begin();
    for (const ByteDfa::Edge& edge : state.edges) {
      int first = edge.first;
      for (; child != node.children.end() && child->first <= edge.last; ++child) {
        const uint8_t byte = child->first;
        if (first < byte) {
          AppendEdge(
              {static_cast<uint8_t>(first), static_cast<uint8_t>(byte - 1), base + edge.target},
              &made.edges);
        }
        AppendEdge({byte, byte, child->second}, &made.edges);
        first = byte + 1;
      }
      if (first <= edge.last) {
        AppendEdge({static_cast<uint8_t>(first), edge.last, base + edge.target}, &made.edges);
      }
    }
  }
  for (const ByteDfa::State& state : a.states) {
    ByteDfa::State& made = result.states.emplace_back(state);
    for (ByteDfa::Edge& edge : made.edges) edge.target += base;
  }
  std::vector<bool> is_reached(result.states.size());
  List<uint32_t> open = {0};
  is_reached[0] = true;
  for (size_t i = 0; i < open.size(); ++i) {
    const ByteDfa::State& state = result.states[open[i]];
    if (state.accepting) return result;
    for (const ByteDfa::Edge& edge : state.edges) {
      if (!is_reached[edge.target]) open.push_back(edge.target);
      is_reached[edge.target] = true;
    }
  }
  return {};
}

bool AreEqual(const ByteDfa& a, const ByteDfa& b) {
  // Results of operations are minimal already; equal ones are the same.
  return a == b || Minimize(a) == Minimize(b);
}

bool Overlap(const ByteDfa& a, const ByteDfa& b) {
  return Product(a, b, Operation::kIntersect).MayAccept();
}

}  // namespace specd::grammar
