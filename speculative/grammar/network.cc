#include "speculative/grammar/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "kernels/core/check.h"
#include "speculative/grammar/budget.h"
#include "speculative/grammar/counted.h"
#include "speculative/grammar/hash_tables.h"
#include "speculative/grammar/rule_graph.h"
#include "speculative/grammar/rule_nfas.h"

namespace specd::grammar {
namespace {

// Determinism may cost a rule this many times its nodes, and a few more.
constexpr size_t kGrowthMax = 2;
constexpr size_t kGrowthSlack = 64;
// The members of all sets of a rule, and its edges: 32 MiB.
constexpr size_t kMembersMax = size_t{1} << 22;

// ---- from empty edges to none -------------------------------------------------------------------

// Makes the sets of NFA nodes that a text can lead to the nodes of a RuleGraph.
class SubsetBuilder {
 public:
  explicit SubsetBuilder(const ByteNfa& nfa) : nfa_(nfa), seen_(nfa.nodes.size()) {}

  // False: the graph would be too large, or the work is used up.
  bool Build(RuleGraph* graph) {
    const size_t nodes_max = nfa_.nodes.size() * kGrowthMax + kGrowthSlack;
    NodeOf({nfa_.start});
    for (size_t i = 0; i < sets_.size(); ++i) {
      if (sets_.size() > nodes_max || num_members_ > kMembersMax) return false;
      if (!Budget::Spend(num_looks_)) return false;
      num_looks_ = 0;
      graph->nodes.emplace_back();
      Expand(*sets_[i], &graph->nodes.back());
    }
    return true;
  }

 private:
  using Set = List<uint32_t>;

  Set Closed(Set set) {
    for (const uint32_t node : set) seen_[node] = true;
    for (size_t i = 0; i < set.size(); ++i) {
      for (const uint32_t next : nfa_.nodes[set[i]].empties) {
        if (!seen_[next]) set.push_back(next);
        seen_[next] = true;
      }
    }
    for (const uint32_t node : set) seen_[node] = false;
    num_looks_ += 4 * set.size();  // closing, sorting and hashing
    // Nodes with empty edges alone say nothing more.
    std::erase_if(set, [&](uint32_t node) {
      return node != nfa_.final && nfa_.nodes[node].edges.empty() && nfa_.nodes[node].calls.empty();
    });
    std::sort(set.begin(), set.end());
    return set;
  }

  uint32_t NodeOf(Set set) {
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
    const auto [entry, is_new] =
        ids_.try_emplace(Closed(std::move(set)), static_cast<uint32_t>(sets_.size()));
    if (is_new) {
      sets_.push_back(&entry->first);
      num_members_ += entry->first.size();
    }
    return entry->second;
  }

  void Expand(const Set& set, RuleGraph::Node* node) {
    // The bytes at which some edge begins, or has just ended.
    List<int> cuts;
    std::map<uint32_t, Set> calls;
    for (const uint32_t member : set) {
      node->is_end |= member == nfa_.final;
      num_looks_ += 1 + nfa_.nodes[member].edges.size();
      for (const ByteNfa::Edge& edge : nfa_.nodes[member].edges) {
        cuts.push_back(edge.first);
        cuts.push_back(edge.last + 1);
      }
      for (const ByteNfa::CallEdge& call : nfa_.nodes[member].calls) {
        calls[call.rule].push_back(call.target);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    List<Set> targets(cuts.size());
    for (const uint32_t member : set) {
      for (const ByteNfa::Edge& edge : nfa_.nodes[member].edges) {
        auto cut = std::lower_bound(cuts.begin(), cuts.end(), edge.first);
        for (; *cut <= edge.last; ++cut) {
          targets[static_cast<size_t>(cut - cuts.begin())].push_back(edge.target);
        }
      }
    }
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (targets[i].empty()) continue;
      const uint32_t target = NodeOf(std::move(targets[i]));
      const auto first = static_cast<uint8_t>(cuts[i]);
      const auto last = static_cast<uint8_t>(cuts[i + 1] - 1);
      if (!node->edges.empty() && node->edges.back().last + 1 == first &&
          node->edges.back().target == target) {
        node->edges.back().last = last;
      } else {
        node->edges.push_back({first, last, target});
      }
    }
    for (auto& [rule, next] : calls) node->calls.emplace_back(rule, NodeOf(std::move(next)));
  }

  const ByteNfa& nfa_;
  std::vector<bool> seen_;
  HashMap<Set, uint32_t> ids_;
  List<const Set*> sets_;   // keys of ids_, which never moves them
  size_t num_members_ = 0;  // of all sets
  size_t num_looks_ = 0;    // since the work was last counted
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

// The bytes that the C library takes for an allocation: 8 of its own, steps of 16, and 32 at least.
size_t HeapBytes(size_t size_bytes) {
  return size_bytes == 0 ? 0 : std::max<size_t>(32, (size_bytes + 8 + 15) / 16 * 16);
}

}  // namespace

absl::StatusOr<Network> Network::Build(const GrammarRules& rules, const ByteSet& bytes) {
  absl::StatusOr<RuleNfas> nfas = BuildRuleNfas(rules, bytes);
  if (!nfas.ok()) return nfas.status();
  Network network;
  network.accepts_empty_ = nfas->accepts_empty;
  network.is_never_ = nfas->is_never;
  List<uint32_t> starts;
  for (const ByteNfa& nfa : nfas->rules) {
    starts.push_back(static_cast<uint32_t>(network.nodes_.size()));
    if (nfa.IsFrame()) {
      network.AddFrame(nfa.frame);
      continue;
    }
    RuleGraph graph;
    if (SubsetBuilder(nfa).Build(&graph)) {
      graph = MergeEqualNodes(graph);
    } else {
      absl::StatusOr<RuleGraph> closed = WithoutEmptyEdges(nfa);
      if (!closed.ok()) return closed.status();
      graph = *std::move(closed);
    }
    const uint32_t base = starts.back();
    const std::vector<bool> is_loop = FindLoops(graph);
    for (RuleGraph::Node& from : graph.nodes) {
      Node& node = network.nodes_.emplace_back();
      node.edges = std::move(from.edges);
      node.is_end = from.is_end;
      for (Edge& edge : node.edges) {
        edge.target += base;
        node.bytes = node.bytes | ByteSet::Range(edge.first, edge.last);
      }
      for (const auto& [rule, next] : from.calls) node.calls.push_back({rule, next + base});
      node.is_tail = node.is_end && node.edges.empty() && node.calls.empty();
      node.is_loop = is_loop[network.nodes_.size() - 1 - base];
    }
  }
  // Calls have the rules' numbers until here.
  for (Node& node : network.nodes_) {
    for (Call& call : node.calls) call.start = starts[call.start];
  }
  for (NetworkFrame& frame : network.frames_) {
    const bool is_count = frame.kind == FrameRule::Kind::kCount;
    for (uint32_t* start :
         {&frame.separator, &frame.other, &frame.needed_other, is_count ? &frame.part : nullptr}) {
      if (start != nullptr && *start != NetworkFrame::kNoNode) *start = starts[*start];
    }
    for (List<uint32_t>* values : {&frame.values, &frame.needed_values}) {
      for (uint32_t& value : *values) {
        if (value != NetworkFrame::kNoNode) value = starts[value];
      }
    }
  }
  network.start_ = starts[nfas->root];
  network.FindClasses();
  network.nodes_.shrink_to_fit();
  return network;
}

void Network::AddFrame(const FrameRule& rule) {
  const auto number = static_cast<uint32_t>(frames_.size());
  nodes_.push_back({.role = Role::kEntry, .frame = number});
  nodes_.push_back({.role = Role::kNext, .frame = number});
  static_assert(kNoRule == NetworkFrame::kNoNode);
  NetworkFrame& frame = frames_.emplace_back();
  frame.kind = rule.kind;
  frame.min = rule.min;
  frame.max = rule.max;
  frame.part = rule.part;
  if (rule.kind == FrameRule::Kind::kCount) return;
  frame.any_order = rule.any_order;
  frame.has_values = rule.has_values;
  frame.separator = rule.separator;
  frame.other = rule.other;
  const size_t num_keys = rule.keys.size();
  frame.next_required.assign(num_keys + 1, static_cast<uint32_t>(num_keys));
  frame.num_required.assign(num_keys + 1, 0);
  const auto mark = [&](size_t key, List<uint64_t>* words) {
    if (rule.any_order) {
      words->resize(std::max(words->size(), key / 64 + 1));
      (*words)[key / 64] |= uint64_t{1} << key % 64;
    }
  };
  for (size_t key = num_keys; key-- > 0;) {
    const bool is_required = rule.keys[key].is_required;
    frame.next_required[key] =
        is_required ? static_cast<uint32_t>(key) : frame.next_required[key + 1];
    frame.num_required[key] = frame.num_required[key + 1] + (is_required ? 1 : 0);
    if (is_required) mark(key, &frame.required_keys);
  }
  frame.has_need = rule.has_need;
  frame.needed_other = rule.needed_other;
  for (uint32_t key = 0; key < num_keys; ++key) {
    frame.values.push_back(rule.keys[key].value);
    frame.needed_values.push_back(rule.keys[key].needed_value);
    if (rule.keys[key].needed_value == kNoRule) continue;
    frame.needed_keys_end = key + 1;
    mark(key, &frame.needed_keys);
  }
  frame.part = AddKeys(rule, number);
}

uint32_t Network::AddKeys(const FrameRule& rule, uint32_t frame) {
  const auto root = static_cast<uint32_t>(nodes_.size());
  const auto add = [&] {
    nodes_.push_back({.role = Role::kKey, .frame = frame});
    return static_cast<uint32_t>(nodes_.size() - 1);
  };
  add();
  List<List<uint32_t>> lists(1);  // [node - root]
  for (uint32_t key = 0; key < rule.keys.size(); ++key) {
    uint32_t at = root;
    lists[0].push_back(key);
    for (const char character : rule.keys[key].text) {
      const auto byte = static_cast<uint8_t>(character);
      List<Edge>& edges = nodes_[at].edges;
      const auto place =
          std::lower_bound(edges.begin(), edges.end(), byte,
                           [](const Edge& edge, uint8_t value) { return edge.first < value; });
      if (place != edges.end() && place->first == byte) {
        at = place->target;
      } else {
        const auto target = static_cast<uint32_t>(nodes_.size());
        edges.insert(place, {byte, byte, target});
        nodes_[at].bytes.Add(byte);
        at = add();
        lists.emplace_back();
      }
      lists[at - root].push_back(key);
    }
    nodes_[at].whole_key = key;
  }
  for (size_t i = 0; i < lists.size(); ++i) {
    Node& node = nodes_[root + i];
    node.first_key = static_cast<uint32_t>(key_lists_.size());
    node.num_keys = static_cast<uint32_t>(lists[i].size());
    key_lists_.insert(key_lists_.end(), lists[i].begin(), lists[i].end());
  }
  return root;
}

void Network::ListCalled(const Node& node, List<uint32_t>* called) const {
  for (const Call& call : node.calls) called->push_back(call.start);
  if (node.role != Role::kEntry) return;
  for (const uint32_t start : {frame(node).part, frame(node).other, frame(node).needed_other}) {
    if (start != NetworkFrame::kNoNode) called->push_back(start);
  }
}

void Network::FindRanks() {
  // Only starts are called. Without left recursion the calls among them have no circle, so each
  // start is ranked when all its callers are.
  List<uint32_t> called;
  List<uint32_t> num_callers(nodes_.size());
  std::vector<bool> is_start(nodes_.size());
  for (const Node& node : nodes_) {
    called.clear();
    ListCalled(node, &called);
    for (const uint32_t start : called) is_start[start] = true;
  }
  List<uint32_t> open;
  uint32_t num_starts = 0;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!is_start[i]) continue;
    ++num_starts;
    nodes_[i].rank = 1;
    called.clear();
    ListCalled(nodes_[i], &called);
    for (const uint32_t start : called) ++num_callers[start];
  }
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (is_start[i] && num_callers[i] == 0) open.push_back(i);
  }
  for (size_t i = 0; i < open.size(); ++i) {
    const uint32_t caller_rank = nodes_[open[i]].rank;
    called.clear();
    ListCalled(nodes_[open[i]], &called);
    for (const uint32_t start : called) {
      nodes_[start].rank = std::max(nodes_[start].rank, caller_rank + 1);
      if (--num_callers[start] == 0) open.push_back(start);
    }
  }
  SPECD_CHECK(open.size() == num_starts);
}

void Network::FindClasses() {
  // A class begins at each byte at which some edge begins or has just ended.
  std::array<bool, 257> is_cut = {};
  is_cut[0] = true;
  for (const Node& node : nodes_) {
    for (const Edge& edge : node.edges) {
      is_cut[edge.first] = true;
      is_cut[edge.last + 1] = true;
    }
  }
  uint32_t next = 0;
  for (size_t byte = 0; byte < byte_class_.size(); ++byte) {
    if (is_cut[byte]) ++next;
    byte_class_[byte] = static_cast<uint8_t>(next - 1);
  }
  num_classes_ = next;
}

size_t Network::size_bytes() const {
  size_t size = sizeof(Network) + HeapBytes(nodes_.capacity() * sizeof(Node));
  for (const Node& node : nodes_) {
    size += HeapBytes(node.edges.capacity() * sizeof(Edge)) +
            HeapBytes(node.calls.capacity() * sizeof(Call));
  }
  size += key_lists_.capacity() * sizeof(uint32_t) + frames_.capacity() * sizeof(NetworkFrame);
  for (const NetworkFrame& frame : frames_) {
    size += 4 * frame.values.capacity() * sizeof(uint32_t);
    size += (frame.required_keys.capacity() + frame.needed_keys.capacity()) * sizeof(uint64_t);
  }
  return size;
}

}  // namespace specd::grammar
