// SchemaLogic combines forms: and, or, not; and it asks whether anything is left of one.
//
// Results are exact, or the error says why they cannot be: UNIMPLEMENTED, or RESOURCE_EXHAUSTED
// where lists or automata grow past a limit. Formats narrow what is offered and decide nothing here
// (StringSchema says why).
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "speculative/grammar/counted.h"
#include "speculative/grammar/hash_tables.h"
#include "speculative/grammar/schema_form.h"
#include "speculative/grammar/schema_validator.h"

namespace specd::grammar {

class SchemaForms;

inline constexpr size_t kAlternativesMax = 16384;

class SchemaLogic {
 public:
  // `forms` must outlive this; it gives the forms of items and properties.
  explicit SchemaLogic(SchemaForms* forms) : forms_(*forms), validator_(forms) {}

  absl::StatusOr<SchemaForm> And(const SchemaForm& a, const SchemaForm& b);
  absl::StatusOr<SchemaForm> Not(const SchemaForm& form);
  absl::StatusOr<SchemaForm> Or(SchemaForm a, const SchemaForm& b);
  // True only if no value is in both.
  absl::StatusOr<bool> AreDisjoint(const SchemaForm& a, const SchemaForm& b);
  // True only if no value is allowed. Items and properties are looked at a few levels deep, and a
  // schema whose form is being made may allow something.
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

  SchemaForms& forms_;
  SchemaValidator validator_;
  uint32_t depth_ = 0;  // of IsEmpty
  // Sets that AllowsNothing was asked for: those that allow nothing, and the others with the least
  // depth at which no contradiction was found.
  HashSet<SchemaSet> nothing_;
  HashMap<SchemaSet, uint32_t> something_;
};

}  // namespace specd::grammar
