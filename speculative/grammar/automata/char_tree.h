// CharTree holds the UTF-8 spellings of a CharSet as a tree of bytes, for BuildNfa.
//
// Characters that go on alike share a node, and no two edges of a node share a byte. A class of
// many characters therefore has few nodes. Immutable, for any thread.
//
//   const CharTree tree(CharSet::Range(0x80, 0x7FF));   // a node for the second byte
#pragma once

#include <cstdint>
#include <utility>

#include "speculative/grammar/base/char_set.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"

namespace specd::grammar {

class CharTree {
 public:
  // Bytes first..last lead to the node `target`, or complete the character: kDone.
  struct Edge {
    uint8_t first = 0;
    uint8_t last = 0;
    uint32_t target = 0;
  };
  using Node = List<Edge>;
  static constexpr uint32_t kDone = ~uint32_t{0};

  explicit CharTree(const CharSet& set);

  // Node 0 reads the first byte. The edges of a node are sorted.
  const List<Node>& nodes() const { return nodes_; }

 private:
  // The node that reads `num_bytes` more bytes, of the characters whose last bits are in `ranges`.
  uint32_t NodeOf(uint32_t num_bytes, const List<CharRange>& ranges);
  // Adds edges for the byte that `num_bytes` follow. Its bits are added to `base`.
  void AddEdges(uint32_t node, uint32_t base, uint32_t num_bytes, const List<CharRange>& ranges);

  List<Node> nodes_;
  HashMap<std::pair<uint32_t, List<CharRange>>, uint32_t> known_;
};

}  // namespace specd::grammar
