// SchemaSet is a conjunction of places in a schema document: an instance must satisfy all of them.
//
// Merged schemas are sets of terms, so that a recursive document has finitely many of them, and one
// rule serves each. Sets are sorted and hold no term twice. The empty set allows everything.
#pragma once

#include <utility>

#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/json_value.h"

namespace specd::grammar {

struct SchemaTerm {
  const JsonValue* schema = nullptr;
  bool is_negated = false;  // the instance must not satisfy it

  friend bool operator==(const SchemaTerm&, const SchemaTerm&) = default;
  friend bool operator<(const SchemaTerm& a, const SchemaTerm& b) {
    if (a.schema->index != b.schema->index) return a.schema->index < b.schema->index;
    return a.is_negated < b.is_negated;
  }
  template <typename H>
  friend H AbslHashValue(H state, const SchemaTerm& term) {
    return H::combine(std::move(state), term.schema->index, term.is_negated);
  }
};

using SchemaSet = List<SchemaTerm>;

// The schema `false`, for what no document spells out.
const JsonValue& NothingSchema();

SchemaSet SetOf(const SchemaTerm& term);
// The place that a set comes from, for the names of rules and for errors. REQUIRES: it is not
// empty.
inline const JsonValue& PlaceOf(const SchemaSet& set) { return *set[0].schema; }
SchemaSet NothingSet();
// True if a term is `false` as it is written. Others may turn out to allow nothing too.
bool IsNothing(const SchemaSet& set);
// A value that does not satisfy the set satisfies one of these.
List<SchemaSet> Opposites(const SchemaSet& set);
// No value satisfies both, as one look at the terms shows: UniteSets makes nothing of them.
bool AreContrary(const SchemaSet& a, const SchemaSet& b);
// Nothing, if it would ask for a schema and for its opposite.
SchemaSet UniteSets(const SchemaSet& a, const SchemaSet& b);

}  // namespace specd::grammar
