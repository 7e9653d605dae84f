#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/check.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/network/network.h"
#include "speculative/grammar/network/rule_graph.h"
#include "speculative/grammar/network/rule_subsets.h"
#include "speculative/grammar/rules/rule_nfas.h"

namespace specd::grammar {

// NetworkBuilder makes one Network.
class NetworkBuilder {
 public:
  absl::StatusOr<Network> Build(const GrammarRules& rules, const ByteSet& bytes);

 private:
  using Call = Network::Call;
  using Edge = Network::Edge;
  using Node = Network::Node;
  using Role = Network::Role;

  void AddFrame(const FrameRule& rule);
  // The tree of the keys; returns its root.
  uint32_t AddKeys(const FrameRule& rule, uint32_t frame);
  // The nodes that `node` leads to without a byte.
  void ListCalled(const Node& node, List<uint32_t>* called) const;
  void FindRanks();
  void FindClasses();

  Network network_;
};

absl::StatusOr<Network> NetworkBuilder::Build(const GrammarRules& rules, const ByteSet& bytes) {
  absl::StatusOr<RuleNfas> nfas = BuildRuleNfas(rules, bytes);
  if (!nfas.ok()) return nfas.status();
  network_.accepts_empty_ = nfas->accepts_empty;
  network_.is_never_ = nfas->is_never;
  List<uint32_t> starts;
  for (const ByteNfa& nfa : nfas->rules) {
    starts.push_back(static_cast<uint32_t>(network_.nodes_.size()));
    if (nfa.IsFrame()) {
      AddFrame(nfa.frame);
      continue;
    }
    absl::StatusOr<RuleGraph> graph = MakeRuleGraph(nfa);
    if (!graph.ok()) return graph.status();
    const uint32_t base = starts.back();
    const std::vector<bool> is_loop = FindLoops(*graph);
    for (RuleGraph::Node& from : graph->nodes) {
      Node& node = network_.nodes_.emplace_back();
      node.edges = std::move(from.edges);
      node.is_end = from.is_end;
      for (Edge& edge : node.edges) {
        edge.target += base;
        node.bytes = node.bytes | ByteSet::Range(edge.first, edge.last);
      }
      for (const auto& [rule, next] : from.calls) node.calls.push_back({rule, next + base});
      node.is_tail = node.is_end && node.edges.empty() && node.calls.empty();
      node.is_loop = is_loop[network_.nodes_.size() - 1 - base];
    }
  }
  // Calls have the rules' numbers until here.
  for (Node& node : network_.nodes_) {
    for (Call& call : node.calls) call.start = starts[call.start];
  }
  for (NetworkFrame& frame : network_.frames_) {
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
  network_.start_ = starts[nfas->root];
  FindClasses();
  network_.nodes_.shrink_to_fit();
  return std::move(network_);
}

void NetworkBuilder::AddFrame(const FrameRule& rule) {
  const uint32_t number = network_.frames_.size();
  network_.nodes_.push_back({.role = Role::kEntry, .frame = number});
  network_.nodes_.push_back({.role = Role::kNext, .frame = number});
  static_assert(kNoRule == NetworkFrame::kNoNode);
  NetworkFrame& frame = network_.frames_.emplace_back();
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

uint32_t NetworkBuilder::AddKeys(const FrameRule& rule, uint32_t frame) {
  const uint32_t root = network_.nodes_.size();
  const auto add = [&] {
    network_.nodes_.push_back({.role = Role::kKey, .frame = frame});
    return static_cast<uint32_t>(network_.nodes_.size() - 1);
  };
  add();
  List<List<uint32_t>> lists(1);  // [node - root]
  for (uint32_t key = 0; key < rule.keys.size(); ++key) {
    uint32_t at = root;
    lists[0].push_back(key);
    for (const char character : rule.keys[key].text) {
      const uint8_t byte = character;
      List<Edge>& edges = network_.nodes_[at].edges;
      const auto place =
          std::lower_bound(edges.begin(), edges.end(), byte,
                           [](const Edge& edge, uint8_t value) { return edge.first < value; });
      if (place != edges.end() && place->first == byte) {
        at = place->target;
      } else {
        const uint32_t target = network_.nodes_.size();
        edges.insert(place, {byte, byte, target});
        network_.nodes_[at].bytes.Add(byte);
        at = add();
        lists.emplace_back();
      }
      lists[at - root].push_back(key);
    }
    network_.nodes_[at].whole_key = key;
  }
  for (size_t i = 0; i < lists.size(); ++i) {
    Node& node = network_.nodes_[root + i];
    node.first_key = static_cast<uint32_t>(network_.key_lists_.size());
    node.num_keys = static_cast<uint32_t>(lists[i].size());
    network_.key_lists_.insert(network_.key_lists_.end(), lists[i].begin(), lists[i].end());
  }
  return root;
}

void NetworkBuilder::ListCalled(const Node& node, List<uint32_t>* called) const {
  for (const Call& call : node.calls) called->push_back(call.start);
  if (node.role != Role::kEntry) return;
  for (const uint32_t start :
       {network_.frame(node).part, network_.frame(node).other, network_.frame(node).needed_other}) {
    if (start != NetworkFrame::kNoNode) called->push_back(start);
  }
}

void NetworkBuilder::FindRanks() {
  // Only starts are called. Without left recursion the calls among them have no circle, so each
  // start is ranked when all its callers are.
  List<uint32_t> called;
  List<uint32_t> num_callers(network_.nodes_.size());
  std::vector<bool> is_start(network_.nodes_.size());
  for (const Node& node : network_.nodes_) {
    called.clear();
    ListCalled(node, &called);
    for (const uint32_t start : called) is_start[start] = true;
  }
  List<uint32_t> open;
  uint32_t num_starts = 0;
  for (uint32_t i = 0; i < network_.nodes_.size(); ++i) {
    if (!is_start[i]) continue;
    ++num_starts;
    network_.nodes_[i].rank = 1;
    called.clear();
    ListCalled(network_.nodes_[i], &called);
    for (const uint32_t start : called) ++num_callers[start];
  }
  for (uint32_t i = 0; i < network_.nodes_.size(); ++i) {
    if (is_start[i] && num_callers[i] == 0) open.push_back(i);
  }
  for (size_t i = 0; i < open.size(); ++i) {
    const uint32_t caller_rank = network_.nodes_[open[i]].rank;
    called.clear();
    ListCalled(network_.nodes_[open[i]], &called);
    for (const uint32_t start : called) {
      network_.nodes_[start].rank = std::max(network_.nodes_[start].rank, caller_rank + 1);
      if (--num_callers[start] == 0) open.push_back(start);
    }
  }
  SPECD_CHECK(open.size() == num_starts);
}

void NetworkBuilder::FindClasses() {
  // A class begins at each byte at which some edge begins or has just ended.
  std::array<bool, 257> is_cut = {};
  is_cut[0] = true;
  for (const Node& node : network_.nodes_) {
    for (const Edge& edge : node.edges) {
      is_cut[edge.first] = true;
      is_cut[edge.last + 1] = true;
    }
  }
  uint32_t next = 0;
  for (size_t byte = 0; byte < network_.byte_class_.size(); ++byte) {
    if (is_cut[byte]) ++next;
    network_.byte_class_[byte] = static_cast<uint8_t>(next - 1);
  }
  network_.num_classes_ = next;
}

absl::StatusOr<Network> Network::Build(const GrammarRules& rules, const ByteSet& bytes) {
  return NetworkBuilder().Build(rules, bytes);
}

}  // namespace specd::grammar
