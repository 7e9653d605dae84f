#include "speculative/grammar/network/rule_subsets.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/id_table.h"

namespace specd::grammar {
namespace {

// Determinism may cost a rule this many times its nodes, and a few more.
constexpr size_t kGrowthMax = 2;
constexpr size_t kGrowthSlack = 64;
// The members of all sets of a rule, and its edges: 32 MiB.
constexpr size_t kMembersMax = size_t{1} << 22;

// Makes the sets of NFA nodes that a text can lead to the nodes of a RuleGraph. Most sets follow
// from one node, so these are found by that node.
class SubsetBuilder {
 public:
  explicit SubsetBuilder(const ByteNfa& nfa)
      : nfa_(nfa), seen_(nfa.nodes.size()), number_of_(nfa.nodes.size(), kNone) {}

  // False: the graph would be too large, or the work is used up.
  bool Build(RuleGraph* graph) {
    const size_t nodes_max = nfa_.nodes.size() * kGrowthMax + kGrowthSlack;
    NumberOf(nfa_.start);
    for (size_t i = 0; i < num_sets(); ++i) {
      if (num_sets() > nodes_max || members_.size() > kMembersMax) return false;
      if (!Budget::Spend(num_looks_)) return false;
      num_looks_ = 0;
      graph->nodes.emplace_back();
      Expand(i, &graph->nodes.back());
    }
    return true;
  }

 private:
  static constexpr uint32_t kNone = IdTable::kNone;

  using Set = List<uint32_t>;
  using Edge = ByteNfa::Edge;

  size_t num_sets() const { return begins_.size() - 1; }
  std::span<const uint32_t> SetOf(size_t number) const {
    return std::span(members_).subspan(begins_[number], begins_[number + 1] - begins_[number]);
  }

  void Close(Set* set) {
    for (const uint32_t node : *set) seen_[node] = true;
    for (size_t i = 0; i < set->size(); ++i) {
      for (const uint32_t next : nfa_.nodes[(*set)[i]].empties) {
        if (!seen_[next]) set->push_back(next);
        seen_[next] = true;
      }
    }
    for (const uint32_t node : *set) seen_[node] = false;
    num_looks_ += 4 * set->size();  // closing, sorting and hashing
    // Nodes with empty edges alone say nothing more.
    std::erase_if(*set, [&](uint32_t node) {
      return node != nfa_.final && nfa_.nodes[node].edges.empty() && nfa_.nodes[node].calls.empty();
    });
    std::sort(set->begin(), set->end());
  }

  // The number of the set that follows from the nodes of closing_.
  uint32_t InternClosing() {
    Close(&closing_);
    uint64_t hash = closing_.size();
    for (const uint32_t node : closing_) hash = IdTable::Mix(hash ^ node);
    const uint32_t known = numbers_.Find(static_cast<uint32_t>(hash), [&](uint32_t number) {
      const std::span<const uint32_t> set = SetOf(number);
      return std::equal(set.begin(), set.end(), closing_.begin(), closing_.end());
    });
    if (known != kNone) return known;
    numbers_.Reserve();
    members_.insert(members_.end(), closing_.begin(), closing_.end());
    begins_.push_back(members_.size());
    const uint32_t number = num_sets() - 1;
    numbers_.Insert(static_cast<uint32_t>(hash), number);
    return number;
  }
  uint32_t NumberOf(uint32_t node) {
    if (number_of_[node] != kNone) return number_of_[node];
    closing_.assign(1, node);
    return number_of_[node] = InternClosing();
  }
  // Of nodes in any order, and some of them twice.
  uint32_t NumberOf(Set* nodes) {
    std::sort(nodes->begin(), nodes->end());
    nodes->erase(std::unique(nodes->begin(), nodes->end()), nodes->end());
    if (nodes->size() == 1) return NumberOf(nodes->front());
    closing_.assign(nodes->begin(), nodes->end());
    return InternClosing();
  }

  void Expand(size_t number, RuleGraph::Node* node) {
    edges_.clear();
    calls_.clear();
    for (const uint32_t member : SetOf(number)) {
      const ByteNfa::Node& from = nfa_.nodes[member];
      node->is_end |= member == nfa_.final;
      num_looks_ += 1 + from.edges.size();
      edges_.insert(edges_.end(), from.edges.begin(), from.edges.end());
      for (const ByteNfa::CallEdge& call : from.calls) calls_.emplace_back(call.rule, call.target);
    }
    const auto is_before = [](const Edge& a, const Edge& b) { return a.first < b.first; };
    if (!std::is_sorted(edges_.begin(), edges_.end(), is_before)) {
      std::sort(edges_.begin(), edges_.end(), is_before);
    }
    const auto touch = [](const Edge& a, const Edge& b) { return b.first <= a.last; };
    if (std::adjacent_find(edges_.begin(), edges_.end(), touch) == edges_.end()) {
      for (const Edge& edge : edges_) {
        AddEdge({edge.first, edge.last, NumberOf(edge.target)}, node);
      }
    } else {
      ExpandTouching(node);
    }
    std::sort(calls_.begin(), calls_.end());
    for (size_t i = 0; i < calls_.size();) {
      const RuleId rule = calls_[i].first;
      Set targets;
      for (; i < calls_.size() && calls_[i].first == rule; ++i) targets.push_back(calls_[i].second);
      node->calls.emplace_back(rule, NumberOf(&targets));
    }
  }

  // Edges that share bytes are cut where some edge begins, or has just ended.
  void ExpandTouching(RuleGraph::Node* node) {
    List<int> cuts;
    for (const Edge& edge : edges_) {
      cuts.push_back(edge.first);
      cuts.push_back(edge.last + 1);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    List<Set> targets(cuts.size());
    for (const Edge& edge : edges_) {
      auto cut = std::lower_bound(cuts.begin(), cuts.end(), edge.first);
      for (; *cut <= edge.last; ++cut) {
        targets[cut - cuts.begin()].push_back(edge.target);
      }
    }
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (targets[i].empty()) continue;
      AddEdge({static_cast<uint8_t>(cuts[i]), static_cast<uint8_t>(cuts[i + 1] - 1),
               NumberOf(&targets[i])},
              node);
    }
  }

  static void AddEdge(const Network::Edge& edge, RuleGraph::Node* node) {
    if (!node->edges.empty() && node->edges.back().last + 1 == edge.first &&
        node->edges.back().target == edge.target) {
      node->edges.back().last = edge.last;
    } else {
      node->edges.push_back(edge);
    }
  }

  const ByteNfa& nfa_;
  std::vector<bool> seen_;
  Set number_of_;  // by the node that a set follows from
  IdTable numbers_;
  List<uint32_t> members_;  // of the sets, one after another
  List<size_t> begins_ = {0};
  size_t num_looks_ = 0;  // since the work was last counted
  // Of the set that is being made, or expanded.
  Set closing_;
  List<Edge> edges_;
  List<std::pair<RuleId, uint32_t>> calls_;
};

// The same nodes, each with the edges of its closure.
absl::StatusOr<RuleGraph> WithoutEmptyEdges(const ByteNfa& nfa) {
  RuleGraph graph;
  List<uint32_t> number(nfa.nodes.size(), ~uint32_t{0});
  List<uint32_t> order;
  const auto number_of = [&](uint32_t node) {
    if (number[node] == ~uint32_t{0}) {
      number[node] = static_cast<uint32_t>(order.size());
      order.push_back(node);
    }
    return number[node];
  };
  number_of(nfa.start);
  size_t num_edges = 0;
  List<uint32_t> seen_at(nfa.nodes.size(), ~uint32_t{0});
  for (uint32_t i = 0; i < order.size(); ++i) {
    RuleGraph::Node result;
    List<uint32_t> closure = {order[i]};
    seen_at[order[i]] = i;
    for (size_t k = 0; k < closure.size(); ++k) {
      const ByteNfa::Node& node = nfa.nodes[closure[k]];
      result.is_end |= closure[k] == nfa.final;
      for (const ByteNfa::Edge& edge : node.edges) {
        result.edges.push_back({edge.first, edge.last, number_of(edge.target)});
      }
      for (const ByteNfa::CallEdge& call : node.calls) {
        result.calls.emplace_back(call.rule, number_of(call.target));
      }
      for (const uint32_t next : node.empties) {
        if (seen_at[next] != i) closure.push_back(next);
        seen_at[next] = i;
      }
    }
    num_edges += result.edges.size() + result.calls.size();
    if (!Budget::Spend(closure.size() + result.edges.size() + result.calls.size())) {
      return Budget::Refusal();
    }
    if (num_edges > kMembersMax) {
      return absl::ResourceExhaustedError(fmt::format(
          "the grammar needs more than {} edges: shorten its repetitions", kMembersMax));
    }
    graph.nodes.push_back(std::move(result));
  }
  return graph;
}

}  // namespace

absl::StatusOr<RuleGraph> MakeRuleGraph(const ByteNfa& nfa) {
  RuleGraph graph;
  if (SubsetBuilder(nfa).Build(&graph)) return MergeEqualNodes(graph);
  return WithoutEmptyEdges(nfa);
}

}  // namespace specd::grammar
