// StackTable keeps the stacks of a LazyAutomaton, each once, so that a stack is a number.
//
// A stack is a node to return to, with the numbers of its frame, on a stack below. The numbers may
// name a set of keys, which is kept here too. A stack may also be one of several stacks. Each stack
// knows its near one, which allows the same texts of up to `near_bytes` bytes. The caller locks; if
// memory runs out, nothing has changed.
//
//   const uint32_t stack = stacks.Push(node, StackTable::kEmpty);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "speculative/grammar/base/grammar_memory.h"
#include "speculative/grammar/base/id_table.h"
#include "speculative/grammar/network/frame_numbers.h"
#include "speculative/grammar/network/network.h"
#include "speculative/grammar/states/key_sets.h"

namespace specd::grammar {

class StackTable {
 public:
  static constexpr uint32_t kEmpty = 0;
  static constexpr uint32_t kEitherNode = ~uint32_t{0};  // the node of a cell that joins two stacks

  struct Cell {
    // kEitherNode: the stack is `below`, or the one whose number is numbers.first. Such cells form
    // a list: `below` is never another.
    uint32_t node = 0;
    uint32_t below = kEmpty;
    FrameNumbers numbers = {};  // of a node of a frame rule; a set in them is one of sets()
    uint32_t near = kEmpty;     // the near stack
  };

  // Both outlive the table. What it takes is added to `bytes`: an estimate from above.
  StackTable(const Network* network, uint32_t near_bytes, CountedBytes* bytes)
      : network_(*network), near_bytes_(near_bytes), bytes_(*bytes), sets_(bytes), cells_(1) {}

  const Cell& cell(uint32_t stack) const { return cells_[stack]; }
  KeySets& sets() { return sets_; }
  const KeySets& sets() const { return sets_; }
  uint32_t Push(uint32_t node, uint32_t below, FrameNumbers numbers = {});
  // Push of a node that a call returns to, without numbers. A stack where a loop would stand on
  // itself is the stack below: texts that nest without an end, such as `r ::= "a" r*`, have few
  // stacks.
  // The stacks that it listed are added to *num_listed.
  uint32_t PushReturn(uint32_t node, uint32_t below, size_t* num_listed);
  // A stack that is either of these. Alternatives that read the same, such as the members of many
  // objects, are so followed once. The list is the function's to change.
  uint32_t Either(std::vector<uint32_t>* stacks);
  // Adds the stacks that a stack is one of.
  void List(uint32_t stack, std::vector<uint32_t>* stacks) const;

  struct ExportedCell {
    Cell cell;
    std::vector<uint64_t> set;  // that of its numbers
  };
  // The cells that the stacks reach. A cell is below all cells that stand on it, so it comes before
  // them; cell i there has the number i + 1, and 0 is the empty stack. The stacks get the numbers
  // that they have there.
  std::vector<ExportedCell> Export(std::vector<uint32_t>* stacks) const;
  // Pushes an exported cell. `numbers` holds the numbers here of the cells before it.
  uint32_t Import(const ExportedCell& exported, std::span<const uint32_t> numbers);

 private:
  static constexpr uint32_t kSameStack = ~uint32_t{0};

  // The near stack of a new cell; kSameStack: the cell itself.
  uint32_t NearOf(const Cell& cell);
  // Stacks that differ only in the counts of one repetition become one where that is exact.
  void JoinCounts(std::vector<uint32_t>* stacks);
  bool IsCount(const Cell& cell) const;
  bool HasSet(const Cell& cell) const {
    return cell.node != kEitherNode && network_.HasKeySet(network_.node(cell.node));
  }

  const Network& network_;
  const uint32_t near_bytes_;
  CountedBytes& bytes_;
  KeySets sets_;
  std::vector<Cell> cells_;  // the first is that of the empty stack
  IdTable ids_;
};

}  // namespace specd::grammar
