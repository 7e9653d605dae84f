// SubsetConstruction makes the ByteDfa of a ByteNfa.
//
// A state of the result is the set of nodes that one text can reach. Limits bound the states, the
// memory and the work, so that a hostile expression ends with RESOURCE_EXHAUSTED. Call edges are
// refused: a rule may call itself, and then no ByteDfa has its language.
//
//   absl::StatusOr<ByteDfa> dfa = SubsetConstruction(nfa).Run();
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/rules/byte_nfa.h"

namespace specd::grammar {

// Estimates: the nodes of all sets take 64 MB, and the visits a second.
inline constexpr size_t kSubsetNodesMax = size_t{1} << 24;
inline constexpr size_t kSubsetVisitsMax = size_t{1} << 26;

class SubsetConstruction {
 public:
  explicit SubsetConstruction(const ByteNfa& nfa) : nfa_(nfa), visited_in_(nfa.nodes.size(), 0) {}

  absl::StatusOr<ByteDfa> Run();

 private:
  using Subset = List<uint32_t>;

  // The nodes that empty edges lead to from `seeds`, without those that neither read a byte nor
  // are the final one. Sorted.
  Subset Close(const Subset& seeds);
  uint32_t Intern(Subset subset);
  // Fills the edges of the subset's state; interns the subsets that they lead to.
  void Expand(const Subset& subset, List<ByteDfa::Edge>* edges);
  bool IsWithinWork() const {
    return num_nodes_ <= kSubsetNodesMax && num_visits_ <= kSubsetVisitsMax;
  }

  const ByteNfa& nfa_;
  HashMap<Subset, uint32_t> number_of_;
  List<const Subset*> subsets_;  // keys of number_of_, which never moves them
  List<uint32_t> visited_in_;    // the number of the closing that met a node last
  uint32_t num_closings_ = 0;
  size_t num_nodes_ = 0;
  size_t num_visits_ = 0;
  size_t num_spent_ = 0;                // of num_visits_, against the bound of compiling
  std::array<Subset, 256> targets_of_;  // by the first byte of a stretch
};

// The language of an expression that calls no rule.
absl::StatusOr<ByteDfa> Determinize(const GrammarRules& rules, ExprId expr);

}  // namespace specd::grammar
