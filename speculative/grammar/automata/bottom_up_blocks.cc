#include "speculative/grammar/automata/bottom_up_blocks.h"

#include <algorithm>
#include <utility>

namespace specd::grammar {

std::optional<List<uint32_t>> BottomUpBlocks::Find() {
  struct Frame {
    uint32_t state;
    size_t next = 0;
  };
  List<Frame> stack = {{.state = 0}};
  block_of_[index_of_[0]] = kOpen;
  while (!stack.empty()) {
    Frame& frame = stack.back();
    const List<ByteDfa::Edge>& edges = dfa_.states[frame.state].edges;
    if (frame.next == edges.size()) {
      block_of_[index_of_[frame.state]] = BlockOf(frame.state);
      stack.pop_back();
      continue;
    }
    const uint32_t target = edges[frame.next++].target;
    const uint32_t index = index_of_[target];
    if (index == ByteDfa::kDead || target == frame.state) continue;
    if (block_of_[index] == kOpen) return std::nullopt;
    if (block_of_[index] != kNone) continue;
    block_of_[index] = kOpen;
    stack.push_back({.state = target});
  }
  return std::move(block_of_);
}

void BottomUpBlocks::Sign(uint32_t state, uint32_t self) {
  signature_.clear();
  for (const ByteDfa::Edge& edge : dfa_.states[state].edges) {
    const uint32_t index = index_of_[edge.target];
    if (index == ByteDfa::kDead) continue;
    const uint32_t block = edge.target == state ? self : block_of_[index];
    AppendEdge({.first = edge.first, .last = edge.last, .target = block}, &signature_);
  }
}

uint32_t BottomUpBlocks::HashOfSignature(bool accepting) const {
  uint64_t hash = accepting ? 1 : 0;
  for (const ByteDfa::Edge& edge : signature_) {
    hash =
        IdTable::Mix(hash ^ (uint64_t{edge.target} << 16 | uint64_t{edge.first} << 8 | edge.last));
  }
  return static_cast<uint32_t>(hash);
}

uint32_t BottomUpBlocks::BlockOfSignature(bool accepting) const {
  const uint32_t number = numbers_.Find(HashOfSignature(accepting), [&](uint32_t i) {
    const Known& known = known_[i];
    return known.accepting == accepting &&
           std::equal(signature_.begin(), signature_.end(), edges_.begin() + known.begin,
                      edges_.begin() + known.end);
  });
  return number == IdTable::kNone ? kNone : known_[number].block;
}

void BottomUpBlocks::Remember(bool accepting, uint32_t block) {
  numbers_.Reserve();
  const size_t begin = edges_.size();
  edges_.insert(edges_.end(), signature_.begin(), signature_.end());
  known_.push_back({.begin = begin, .end = edges_.size(), .accepting = accepting, .block = block});
  numbers_.Insert(HashOfSignature(accepting), static_cast<uint32_t>(known_.size() - 1));
}

uint32_t BottomUpBlocks::BlockOf(uint32_t state) {
  const bool accepting = dfa_.states[state].accepting;
  Sign(state, kSelf);
  if (const uint32_t known = BlockOfSignature(accepting); known != kNone) return known;
  const auto leads_to = [](uint32_t block) {
    return [block](const ByteDfa::Edge& edge) { return edge.target == block; };
  };
  if (std::none_of(signature_.begin(), signature_.end(), leads_to(kSelf))) {
    Remember(accepting, num_blocks_);
    return num_blocks_++;
  }
  // The state may be equal to one that it leads to: its edges to itself then lead there too.
  List<uint32_t> targets;
  for (const ByteDfa::Edge& edge : signature_) {
    if (edge.target != kSelf) targets.push_back(edge.target);
  }
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  for (const uint32_t block : targets) {
    Sign(state, block);
    if (BlockOfSignature(accepting) == block) return block;
  }
  const uint32_t block = num_blocks_++;
  for (const uint32_t self : {kSelf, block}) {
    Sign(state, self);
    Remember(accepting, block);
  }
  return block;
}

}  // namespace specd::grammar
