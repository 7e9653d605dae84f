// BottomUpBlocks finds the equal states of an automaton without circles for DfaMinimizer.
//
// A state comes after those that it leads to, so one look at its edges tells whether an equal one
// is there already (D. Revuz, "Minimisation of acyclic deterministic automata in linear time",
// 1992). An edge from a state to itself is no circle here. Texts with a longest length, and lists
// of words, have such automata. Used once.
//
//   std::optional<List<uint32_t>> blocks = BottomUpBlocks(dfa, index_of, num_kept).Find();
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/id_table.h"

namespace specd::grammar {

class BottomUpBlocks {
 public:
  // `index_of` numbers the kept states, and is ByteDfa::kDead for the others, whose edges count for
  // nothing. REQUIRES: from each kept state a text is accepted, and the start is kept.
  BottomUpBlocks(const ByteDfa& dfa, std::span<const uint32_t> index_of, size_t num_kept)
      : dfa_(dfa), index_of_(index_of), block_of_(num_kept, kNone) {}

  // The block of each kept state, kNone for one that no text reaches; equal states have one block.
  // Nothing: there is a circle of several states.
  std::optional<List<uint32_t>> Find();

  static constexpr uint32_t kNone = ByteDfa::kDead;

 private:
  // The edges of a state with the blocks that they lead to. Neighbours with one block are one edge.
  using Signature = List<ByteDfa::Edge>;
  struct Known {
    size_t begin = 0;  // in edges_
    size_t end = 0;
    bool accepting = false;
    uint32_t block = kNone;
  };

  // The block of the state's edges to itself, until it has one.
  static constexpr uint32_t kSelf = kNone - 1;
  // A state whose edges are being followed.
  static constexpr uint32_t kOpen = kNone - 1;

  // Fills signature_. Edges of the state to itself get `self`.
  void Sign(uint32_t state, uint32_t self);
  // The block of signature_, or kNone.
  uint32_t BlockOfSignature(bool accepting) const;
  void Remember(bool accepting, uint32_t block);
  uint32_t HashOfSignature(bool accepting) const;
  uint32_t BlockOf(uint32_t state);

  const ByteDfa& dfa_;
  const std::span<const uint32_t> index_of_;
  List<uint32_t> block_of_;
  Signature signature_;
  List<ByteDfa::Edge> edges_;  // of all known signatures
  List<Known> known_;
  IdTable numbers_;  // of known_
  uint32_t num_blocks_ = 0;
};

}  // namespace specd::grammar
