// DfaMinimizer makes the smallest automaton of a ByteDfa's language for the operations of
// dfa_operations.h.
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {

// An operation whose result would have more states fails with RESOURCE_EXHAUSTED, and so does one
// that meets far more before it can merge them (kDfaGrowthMax).
inline constexpr size_t kDfaStatesMax = 65536;
// An operation stops with RESOURCE_EXHAUSTED at this many states that are not minimal yet. UTF-8
// needs about one and a half times the states of the result.
inline constexpr size_t kDfaGrowthMax = size_t{1} << 18;

// A result that would have more transitions fails with RESOURCE_EXHAUSTED. Estimate: the minimizer
// holds 28 bytes for each, about 120 MB.
inline constexpr size_t kDfaTransitionsMax = size_t{1} << 22;

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

// An error once an automaton that grows is past its limits.
absl::Status CheckGrowth(size_t num_states, size_t num_edges);
// Minimize, or RESOURCE_EXHAUSTED if there are too many transitions, or states of the result.
absl::StatusOr<ByteDfa> MinimizeWithinLimits(const ByteDfa& dfa);
// The smallest automaton of the same language: states with the same language become one.
ByteDfa Minimize(const ByteDfa& dfa);

}  // namespace specd::grammar
