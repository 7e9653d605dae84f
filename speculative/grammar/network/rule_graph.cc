#include "speculative/grammar/network/rule_graph.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/id_table.h"

namespace specd::grammar {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
// Marks the number of a block inside the component that is being divided.
constexpr uint32_t kLocal = uint32_t{1} << 31;
// Rounds of refinement over a component, times its nodes. Past it the nodes stay apart.
constexpr size_t kRefinementsMax = 1 << 16;

// Numbers lists of values in the order in which they are first met.
class SignatureNumbers {
 public:
  uint32_t size() const { return static_cast<uint32_t>(begins_.size() - 1); }

  uint32_t NumberOf(std::span<const uint64_t> signature) {
    uint64_t hash = signature.size();
    for (const uint64_t value : signature) hash = IdTable::Mix(hash ^ value);
    const uint32_t known = numbers_.Find(static_cast<uint32_t>(hash), [&](uint32_t number) {
      return std::equal(signature.begin(), signature.end(), values_.begin() + begins_[number],
                        values_.begin() + begins_[number + size_t{1}]);
    });
    if (known != IdTable::kNone) return known;
    numbers_.Reserve();
    values_.insert(values_.end(), signature.begin(), signature.end());
    begins_.push_back(static_cast<std::ptrdiff_t>(values_.size()));
    numbers_.Insert(static_cast<uint32_t>(hash), size() - 1);
    return size() - 1;
  }

 private:
  IdTable numbers_;
  List<uint64_t> values_;  // of all signatures, one after another
  List<std::ptrdiff_t> begins_ = {0};
};

class NodeMerger {
 public:
  explicit NodeMerger(const RuleGraph& graph)
      : graph_(graph), block_of_(graph.nodes.size(), kNone) {}

  RuleGraph Run() {
    VisitComponents();
    RuleGraph merged;
    List<uint32_t> number(num_blocks_, kNone);
    List<uint32_t> first_of;  // [number]
    for (uint32_t node = 0; node < graph_.nodes.size(); ++node) {
      if (number[block_of_[node]] != kNone) continue;
      number[block_of_[node]] = static_cast<uint32_t>(first_of.size());
      first_of.push_back(node);
    }
    for (const uint32_t node : first_of) {
      RuleGraph::Node& copy = merged.nodes.emplace_back(graph_.nodes[node]);
      for (Network::Edge& edge : copy.edges) edge.target = number[block_of_[edge.target]];
      for (auto& call : copy.calls) call.second = number[block_of_[call.second]];
    }
    return merged;
  }

 private:
  struct Frame {
    uint32_t node;
    size_t next = 0;
  };

  size_t NumTargets(uint32_t node) const {
    return graph_.nodes[node].edges.size() + graph_.nodes[node].calls.size();
  }
  uint32_t TargetOf(uint32_t node, size_t index) const {
    const RuleGraph::Node& from = graph_.nodes[node];
    return index < from.edges.size() ? from.edges[index].target
                                     : from.calls[index - from.edges.size()].second;
  }

  // Tarjan's algorithm without recursion: a component comes after those that it leads to.
  void VisitComponents() {
    List<uint32_t> order(graph_.nodes.size(), kNone);
    List<uint32_t> low(graph_.nodes.size());
    List<uint32_t> open;
    List<Frame> stack;
    uint32_t num_seen = 0;
    const auto enter = [&](uint32_t node) {
      order[node] = low[node] = num_seen++;
      open.push_back(node);
      stack.push_back({.node = node});
    };
    for (uint32_t root = 0; root < graph_.nodes.size(); ++root) {
      if (order[root] == kNone) enter(root);
      while (!stack.empty()) {
        Frame& frame = stack.back();
        const uint32_t node = frame.node;
        if (frame.next < NumTargets(node)) {
          const uint32_t target = TargetOf(node, frame.next++);
          if (order[target] == kNone) {
            enter(target);
          } else if (block_of_[target] == kNone) {  // its component is open
            low[node] = std::min(low[node], order[target]);
          }
          continue;
        }
        stack.pop_back();
        if (!stack.empty()) low[stack.back().node] = std::min(low[stack.back().node], low[node]);
        if (low[node] != order[node]) continue;
        const auto first = std::find(open.rbegin(), open.rend(), node).base() - 1;
        Divide({&*first, static_cast<size_t>(open.end() - first)});
        open.erase(first, open.end());
      }
    }
  }

  // Numbers the blocks of a component. The components that it leads to have their blocks.
  void Divide(std::span<const uint32_t> component) {
    for (const uint32_t node : component) block_of_[node] = kLocal;
    if (component.size() == 1) {
      const uint32_t number = signatures_.NumberOf(SignatureOf(component[0]));
      if (number == block_of_signature_.size()) block_of_signature_.push_back(num_blocks_++);
      block_of_[component[0]] = block_of_signature_[number];
      return;
    }
    // Moore's refinement: nodes are of one block while their edges lead to equal blocks.
    size_t num_local = 0;
    bool is_stable = false;
    for (size_t work = 0; !is_stable && work < kRefinementsMax; work += component.size()) {
      SignatureNumbers local;
      List<uint32_t> next;
      for (const uint32_t node : component) next.push_back(local.NumberOf(SignatureOf(node)));
      for (size_t i = 0; i < next.size(); ++i) block_of_[component[i]] = kLocal | next[i];
      is_stable = local.size() == num_local;
      num_local = local.size();
    }
    for (size_t i = 0; i < component.size(); ++i) {
      uint32_t& block = block_of_[component[i]];
      block = num_blocks_ + (is_stable ? block & ~kLocal : static_cast<uint32_t>(i));
    }
    num_blocks_ += static_cast<uint32_t>(is_stable ? num_local : component.size());
  }

  const List<uint64_t>& SignatureOf(uint32_t index) {
    const RuleGraph::Node& node = graph_.nodes[index];
    List<uint64_t>& signature = signature_;
    signature.assign(1, uint64_t{block_of_[index]} << 1 | (node.is_end ? 1 : 0));
    for (const Network::Edge& edge : node.edges) {
      const uint64_t target = uint64_t{block_of_[edge.target]} << 16;
      // Neighbouring ranges that lead to one block are one range.
      if (signature.size() > 1 && signature.back() >> 16 == target >> 16 &&
          (signature.back() & 0xFF) + 1 == edge.first) {
        signature.back() = (signature.back() & ~uint64_t{0xFF}) | edge.last;
      } else {
        signature.push_back(target | uint64_t{edge.first} << 8 | edge.last);
      }
    }
    signature.push_back(~uint64_t{0});
    for (const auto& [rule, next] : node.calls) {
      signature.push_back(uint64_t{rule} << 32 | block_of_[next]);
    }
    return signature;
  }

  const RuleGraph& graph_;
  List<uint32_t> block_of_;            // by node; kNone: not yet
  SignatureNumbers signatures_;        // of components of one node
  List<uint32_t> block_of_signature_;  // by its number
  List<uint64_t> signature_;           // the last one
  uint32_t num_blocks_ = 0;
};

}  // namespace

RuleGraph MergeEqualNodes(const RuleGraph& graph) { return NodeMerger(graph).Run(); }

std::vector<bool> FindLoops(const RuleGraph& graph) {
  std::vector<bool> is_loop(graph.nodes.size());
  std::vector<uint32_t> seen_from(graph.nodes.size(), kNone);
  std::vector<uint32_t> open;
  for (uint32_t from = 0; from < graph.nodes.size(); ++from) {
    if (!graph.nodes[from].is_end) continue;
    is_loop[from] = true;
    open.assign(1, from);
    seen_from[from] = from;
    const auto reach = [&](uint32_t node) {
      if (seen_from[node] == from) return;
      seen_from[node] = from;
      open.push_back(node);
      is_loop[from] = is_loop[from] && !graph.nodes[node].is_end;
    };
    while (is_loop[from] && !open.empty()) {
      const RuleGraph::Node& node = graph.nodes[open.back()];
      open.pop_back();
      for (const Network::Edge& edge : node.edges) reach(edge.target);
      for (const auto& [rule, next] : node.calls) reach(next);
      is_loop[from] = is_loop[from] && Budget::Spend(1 + node.edges.size() + node.calls.size());
    }
  }
  return is_loop;
}

}  // namespace specd::grammar
