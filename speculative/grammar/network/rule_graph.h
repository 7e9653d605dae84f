// RuleGraph is the automaton of one rule without empty edges, on its way into a Network.
//
// Plain data. Calls name rules, which have no nodes of the Network yet.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/network/network.h"

namespace specd::grammar {

struct RuleGraph {
  struct Node {
    List<Network::Edge> edges;
    List<std::pair<uint32_t, uint32_t>> calls;  // rule, next
    bool is_end = false;
  };
  List<Node> nodes;  // node 0 is the start
};

// Makes nodes one that have the same texts after them. It goes backwards through the strongly
// connected components, so that the time of a long chain is that of one pass. Equal loops of
// several nodes in different places stay apart. REQUIRES: the edges and calls of every node are
// sorted, and no two edges share a byte.
RuleGraph MergeEqualNodes(const RuleGraph& graph);

// Which nodes are loops (Network::Node::is_loop).
std::vector<bool> FindLoops(const RuleGraph& graph);

}  // namespace specd::grammar
