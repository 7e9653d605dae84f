// ValueAlgebra combines sets of allowed values: and, or, not. It also tells whether one is empty.
//
// Results are exact, or the error says why they cannot be: UNIMPLEMENTED, or RESOURCE_EXHAUSTED
// where lists or automata grow past a limit. Formats narrow what is offered and decide nothing here
// (StringSchema says why).
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/json_schema/allowed_values.h"
#include "speculative/grammar/json_schema/constant_validator.h"

namespace specd::grammar {

inline constexpr size_t kAlternativesMax = 16384;

class ValueAlgebra {
 public:
  // `source` must outlive this; it gives the values of items and properties.
  explicit ValueAlgebra(ValueSource* source) : source_(*source), validator_(source) {}

  absl::StatusOr<AllowedValues> And(const AllowedValues& a, const AllowedValues& b);
  absl::StatusOr<AllowedValues> Not(const AllowedValues& allowed);
  absl::StatusOr<AllowedValues> Or(AllowedValues a, const AllowedValues& b);
  // True only if no value is in both.
  absl::StatusOr<bool> AreDisjoint(const AllowedValues& a, const AllowedValues& b);
  // True only if no value is allowed. Items and properties are looked at a few levels deep, and a
  // schema that is being evaluated may allow something.
  absl::StatusOr<bool> IsEmpty(const SchemaAlternative& alternative);

 private:
  absl::StatusOr<std::optional<SchemaAlternative>> Merge(const SchemaAlternative& a,
                                                         const SchemaAlternative& b);
  absl::StatusOr<std::optional<SchemaAlternative>> MergeConstant(const SchemaAlternative& constant,
                                                                 const SchemaAlternative& other);
  // Returns the values of its type that `alternative` forbids. REQUIRES: it is no constant string.
  absl::StatusOr<List<SchemaAlternative>> Forbidden(const SchemaAlternative& alternative);
  absl::StatusOr<List<SchemaAlternative>> ForbiddenArrays(const ArraySchema& array);
  absl::StatusOr<List<SchemaAlternative>> ForbiddenObjects(const ObjectSchema& object);
  absl::StatusOr<bool> AllowsNothing(const SchemaSet& set);

  ValueSource& source_;
  ConstantValidator validator_;
  uint32_t depth_ = 0;  // of IsEmpty
  // Sets that AllowsNothing was asked for: those that allow nothing, and the others with the least
  // depth at which no contradiction was found.
  HashSet<SchemaSet> nothing_;
  HashMap<SchemaSet, uint32_t> something_;
};

}  // namespace specd::grammar
