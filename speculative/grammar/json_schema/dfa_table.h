// DfaTable keeps the automata of one schema, so that merging schemas makes each
// of them once.
//
// Branches that multiply ask for the same patterns and the same names again and
// again. Automata with one language are one object here, and the table
// remembers what an operation made of two of them. Not thread-safe.
//
//   DfaTable dfas;
//   const absl::StatusOr<SharedDfa> both = dfas.Intersect(names, other_names);
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "speculative/grammar/automata/byte_dfa.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/base/id_table.h"

namespace specd::grammar {

using SharedDfa = std::shared_ptr<const ByteDfa>;

class DfaTable {
 public:
  // REQUIRES: `dfa` is minimal, as the results of operations are.
  SharedDfa Share(ByteDfa dfa);
  SharedDfa Share(SharedDfa dfa);

  // Null stands for all strings. REQUIRES: the other automata read strings, and
  // nothing else.
  absl::StatusOr<SharedDfa> Intersect(const SharedDfa& a, const SharedDfa& b);
  absl::StatusOr<SharedDfa> Subtract(const SharedDfa& a, const SharedDfa& b);
  // True if a string is in both, or if that would take too long to tell.
  // REQUIRES: none is null.
  bool Overlap(const SharedDfa& a, const SharedDfa& b);

 private:
  using Pair = std::pair<SharedDfa, SharedDfa>;

  absl::StatusOr<SharedDfa> Remember(
      const Pair& pair, HashMap<Pair, SharedDfa>* known,
      absl::FunctionRef<absl::StatusOr<ByteDfa>(const ByteDfa&, const ByteDfa&)> operation);

  IdTable numbers_;
  List<SharedDfa> all_;  // by number
  HashMap<Pair, SharedDfa> intersections_;
  HashMap<Pair, SharedDfa> differences_;
  HashMap<Pair, bool> overlaps_;
};

// The automaton of all strings.
absl::StatusOr<ByteDfa> AllStrings();

}  // namespace specd::grammar
