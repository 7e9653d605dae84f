// Network is the compiled form of a grammar: small automata of rules in one list of nodes.
//
// A node reads a byte, calls a rule, or ends its rule. Each rule's automaton is deterministic and
// minimal where that costs little; a rule that would grow keeps its first form. A LazyAutomaton
// (lazy_automaton.h) walks a Network with a stack of return nodes. Immutable after Build, so any
// number of threads may read it.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "speculative/grammar/byte_set.h"
#include "speculative/grammar/counted.h"
#include "speculative/grammar/grammar_rules.h"

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
  struct Node {
    List<Edge> edges;
    List<Call> calls;
    ByteSet bytes;         // of the edges
    bool is_end = false;   // the rule may end here
    bool is_tail = false;  // the rule can only end here
  };

  // Texts with bytes outside `bytes` are left out: a tokenizer may not have all. REQUIRES: the root
  // of `rules` is set, and every rule that it reaches is defined.
  static absl::StatusOr<Network> Build(const GrammarRules& rules,
                                       const ByteSet& bytes = ByteSet::All());

  const Node& node(uint32_t index) const { return nodes_[index]; }
  size_t num_nodes() const { return nodes_.size(); }
  uint32_t start() const { return start_; }
  bool accepts_empty() const { return accepts_empty_; }
  // The grammar has no text at all.
  bool is_never() const { return is_never_; }

  // Bytes of one class are on the same edges everywhere.
  uint8_t byte_class(uint8_t byte) const { return byte_class_[byte]; }
  uint32_t num_classes() const { return num_classes_; }

  size_t size_bytes() const;

 private:
  Network() = default;

  void FindClasses();

  List<Node> nodes_;
  uint32_t start_ = 0;
  bool accepts_empty_ = false;
  bool is_never_ = false;
  std::array<uint8_t, 256> byte_class_ = {};
  uint32_t num_classes_ = 1;
};

}  // namespace specd::grammar
