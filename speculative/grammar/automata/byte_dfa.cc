#include "speculative/grammar/automata/byte_dfa.h"

#include <algorithm>

namespace specd::grammar {

bool ByteDfa::Accepts(std::string_view text) const {
  if (IsEmpty()) return false;
  uint32_t state = 0;
  for (const char byte : text) {
    state = Step(state, static_cast<uint8_t>(byte));
    if (state == kDead) return false;
  }
  return states[state].accepting;
}

uint32_t ByteDfa::Step(uint32_t state, uint8_t byte) const {
  if (state == kDead) return kDead;
  const List<Edge>& edges = states[state].edges;
  const auto edge = std::partition_point(
      edges.begin(), edges.end(), [&](const Edge& candidate) { return candidate.last < byte; });
  return edge != edges.end() && edge->first <= byte ? edge->target : kDead;
}

void AppendEdge(const ByteDfa::Edge& edge, List<ByteDfa::Edge>* edges) {
  if (!edges->empty() && edges->back().target == edge.target &&
      edges->back().last + 1 == edge.first) {
    edges->back().last = edge.last;
  } else {
    edges->push_back(edge);
  }
}

}  // namespace specd::grammar
