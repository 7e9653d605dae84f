#include "speculative/grammar/automata/char_tree.h"

#include <algorithm>
#include <utility>

namespace specd::grammar {
namespace {

constexpr uint32_t kBitsOfByte = 6;  // of a byte that continues a character
constexpr uint32_t kContinuation = 0x80;

// The parts of the ranges inside first..last, less `first`.
List<CharRange> Inside(const List<CharRange>& ranges, uint32_t first, uint32_t last) {
  List<CharRange> parts;
  auto range = std::partition_point(ranges.begin(), ranges.end(),
                                    [&](const CharRange& one) { return one.last < first; });
  for (; range != ranges.end() && range->first <= last; ++range) {
    parts.push_back({std::max(range->first, first) - first, std::min(range->last, last) - first});
  }
  return parts;
}

}  // namespace

CharTree::CharTree(const CharSet& set) : nodes_(1) {
  // The first byte of a character of this many bytes, and the last character.
  struct Length {
    uint32_t base;
    uint32_t last;
  };
  constexpr Length kLengths[] = {{0x00, 0x7F}, {0xC0, 0x7FF}, {0xE0, 0xFFFF}, {0xF0, kCharMax}};
  uint32_t first = 0;
  uint32_t num_bytes = 0;
  for (const Length& length : kLengths) {
    List<CharRange> ranges = Inside(set.ranges(), first, length.last);
    for (CharRange& range : ranges) range = {range.first + first, range.last + first};
    AddEdges(0, length.base, num_bytes++, ranges);
    first = length.last + 1;
  }
}

void CharTree::AddEdges(uint32_t node, uint32_t base, uint32_t num_bytes,
                        const List<CharRange>& ranges) {
  if (ranges.empty()) return;
  const uint32_t shift = kBitsOfByte * num_bytes;
  for (uint32_t bits = ranges.front().first >> shift; bits <= ranges.back().last >> shift; ++bits) {
    const uint32_t first = bits << shift;
    const List<CharRange> inside = Inside(ranges, first, first + (uint32_t{1} << shift) - 1);
    if (inside.empty()) continue;
    const uint32_t target = NodeOf(num_bytes, inside);
    const uint8_t byte = base + bits;
    Node& edges = nodes_[node];
    if (!edges.empty() && edges.back().target == target && edges.back().last + 1 == byte) {
      edges.back().last = byte;
    } else {
      edges.push_back({.first = byte, .last = byte, .target = target});
    }
  }
}

uint32_t CharTree::NodeOf(uint32_t num_bytes, const List<CharRange>& ranges) {
  if (num_bytes == 0) return kDone;
  const auto [known, is_new] =
      known_.try_emplace({num_bytes, ranges}, static_cast<uint32_t>(nodes_.size()));
  const uint32_t node = known->second;
  if (!is_new) return node;
  nodes_.emplace_back();
  AddEdges(node, kContinuation, num_bytes - 1, ranges);
  return node;
}

}  // namespace specd::grammar
