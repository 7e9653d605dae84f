// DfaMinimizer makes the smallest automaton of a ByteDfa's language for the operations of
// byte_dfa.h.
//
// The result depends on the language alone: a search in breadth, in the order of the bytes, numbers
// its states. It has no state that no text reaches, and none from which no text is accepted. The
// time is m log m for m transitions (a state and a class of bytes that no edge tells apart), and
// less without circles (bottom_up_blocks.h).
//
//   const ByteDfa smallest = DfaMinimizer(dfa).Run();
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "speculative/grammar/byte_dfa.h"
#include "speculative/grammar/counted.h"

namespace specd::grammar {

// An operation stops with RESOURCE_EXHAUSTED at this many states that are not minimal yet. UTF-8
// needs about one and a half times the states of the result.
inline constexpr size_t kDfaGrowthMax = size_t{1} << 18;

// A result that would have more transitions fails with RESOURCE_EXHAUSTED. Estimate: the minimizer
// holds 28 bytes for each, about 120 MB.
inline constexpr size_t kDfaTransitionsMax = size_t{1} << 22;

// Appends an edge, or widens the last one. REQUIRES: the edges end before `edge`.
void AppendEdge(const ByteDfa::Edge& edge, List<ByteDfa::Edge>* edges);

// The transitions that a minimizer of `dfa` would hold at most.
size_t CountTransitions(const ByteDfa& dfa);

class DfaMinimizer {
 public:
  explicit DfaMinimizer(const ByteDfa& dfa) : dfa_(dfa) {}

  ByteDfa Run();

 private:
  struct Transition {
    uint32_t tail = 0;
    uint32_t head = 0;
    uint8_t label = 0;  // the class of its bytes
  };

  // Fills kept_: the states from which a text is accepted. Quotient drops those out of reach.
  void Keep();
  void MakeTransitions();
  // Returns the block of each kept state; states of one block have the same language.
  List<uint32_t> Refine() const;
  ByteDfa Quotient(const List<uint32_t>& block_of) const;

  const ByteDfa& dfa_;
  List<uint32_t> kept_;      // in the order of dfa_
  List<uint32_t> index_of_;  // of a state in kept_, or kDead
  List<Transition> transitions_;
};

}  // namespace specd::grammar
