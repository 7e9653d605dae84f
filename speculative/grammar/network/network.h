// Network is the compiled form of a grammar: small automata of rules in one list of nodes.
//
// A node reads a byte, calls a rule, or ends its rule. Each rule's automaton is deterministic and
// minimal where that costs little; a rule that would grow keeps its first form. A frame rule has an
// entry, and a tree of its keys; its frame says what may follow (frame_numbers.h). A LazyAutomaton
// (lazy_automaton.h) walks a Network with a stack of return nodes. Immutable after Build, so any
// number of threads may read it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/byte_set.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/network/frame_numbers.h"
#include "speculative/grammar/rules/frame_rule.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

class Network {
 public:
  struct Edge {
    uint8_t first = 0;
    uint8_t last = 0;
    uint32_t target = 0;
  };
  struct Call {
    uint32_t start = 0;  // of the called rule
    uint32_t next = 0;   // the node after the call
  };
  enum class Role : uint8_t {
    kPlain,
    kEntry,  // of a frame rule; a part, or a member, returns here
    kNext,   // of a frame rule; a separator returns here, and a member begins
    kKey,    // of the tree of keys: edges lead on only where the frame allows a key behind them
  };
  static constexpr uint32_t kNoKey = ~uint32_t{0};
  struct Node {
    List<Edge> edges = {};
    List<Call> calls = {};
    ByteSet bytes = {};    // of the edges
    bool is_end = false;   // the rule may end here
    bool is_tail = false;  // the rule can only end here
    // The rule may end here, and behind this node nowhere else: what may follow here may follow any
    // number of times, as behind a star. Two returns to it in a row are one.
    bool is_loop = false;
    Role role = Role::kPlain;
    // Without a byte, a node leads to nodes of larger ranks only: to the rules that it calls.
    uint32_t rank = 0;
    uint32_t frame = 0;  // of every role but kPlain
    // kKey: the keys that begin so, in key_lists, and the one that ends here.
    uint32_t first_key = 0;
    uint32_t num_keys = 0;
    uint32_t whole_key = kNoKey;
  };

  // Texts with bytes outside `bytes` are left out: a tokenizer may not have all. REQUIRES: the root
  // of `rules` is set, and every rule that it reaches is defined.
  static absl::StatusOr<Network> Build(const GrammarRules& rules,
                                       const ByteSet& bytes = ByteSet::All());

  const Node& node(uint32_t index) const { return nodes_[index]; }
  size_t num_nodes() const { return nodes_.size(); }
  const NetworkFrame& frame(const Node& node) const { return frames_[node.frame]; }
  // Members whose keys came, as a set on the stack of their frame: `node` is one of the frame's.
  bool HasKeySet(const Node& node) const {
    return node.role != Role::kPlain && frame(node).any_order;
  }
  std::span<const uint32_t> keys(const Node& node) const {
    return std::span(key_lists_).subspan(node.first_key, node.num_keys);
  }
  uint32_t start() const { return start_; }
  bool accepts_empty() const { return accepts_empty_; }
  // The grammar has no text at all.
  bool is_never() const { return is_never_; }

  // Bytes of one class are on the same edges everywhere.
  uint8_t byte_class(uint8_t byte) const { return byte_class_[byte]; }
  uint32_t num_classes() const { return num_classes_; }

  size_t size_bytes() const;

 private:
  friend class NetworkBuilder;
  Network() = default;

  List<Node> nodes_;
  List<NetworkFrame> frames_;
  List<uint32_t> key_lists_;
  uint32_t start_ = 0;
  bool accepts_empty_ = false;
  bool is_never_ = false;
  std::array<uint8_t, 256> byte_class_ = {};
  uint32_t num_classes_ = 1;
};

}  // namespace specd::grammar
