// SchemaLogic combines forms: and, not, is anything left, does a value satisfy it.
//
// Results are exact, or the error says why they cannot be: UNIMPLEMENTED, or RESOURCE_EXHAUSTED
// where lists or automata grow past a limit. Formats narrow what is offered and decide nothing here
// (StringSchema says why).
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/schema_form.h"

namespace specd::grammar {

class SchemaForms;

inline constexpr size_t kAlternativesMax = 16384;

class SchemaLogic {
 public:
  // `forms` must outlive this; it gives the forms of items and properties.
  explicit SchemaLogic(SchemaForms* forms) : forms_(*forms) {}

  absl::StatusOr<SchemaForm> And(const SchemaForm& a, const SchemaForm& b);
  absl::StatusOr<SchemaForm> Not(const SchemaForm& form);
  absl::StatusOr<SchemaForm> Or(SchemaForm a, const SchemaForm& b);
  // True only if no value is in both.
  absl::StatusOr<bool> AreDisjoint(const SchemaForm& a, const SchemaForm& b);
  // True only if no value is allowed. Items and properties are looked at a few levels deep.
  absl::StatusOr<bool> IsEmpty(const SchemaAlternative& alternative);

  absl::StatusOr<bool> Allows(const SchemaSet& set, const JsonValue& value, bool with_formats);
  absl::StatusOr<bool> Allows(const SchemaForm& form, const JsonValue& value, bool with_formats);

 private:
  absl::StatusOr<std::optional<SchemaAlternative>> Merge(const SchemaAlternative& a,
                                                         const SchemaAlternative& b);
  absl::StatusOr<std::optional<SchemaAlternative>> MergeConstant(const SchemaAlternative& constant,
                                                                 const SchemaAlternative& other);
  // What values of its type `alternative` forbids. REQUIRES: it is no constant string.
  absl::StatusOr<std::vector<SchemaAlternative>> Forbidden(const SchemaAlternative& alternative);
  absl::StatusOr<std::vector<SchemaAlternative>> ForbiddenArrays(const ArraySchema& array);
  absl::StatusOr<std::vector<SchemaAlternative>> ForbiddenObjects(const ObjectSchema& object);
  absl::StatusOr<bool> AllowsNothing(const SchemaSet& set);
  absl::StatusOr<bool> AllowsOne(const SchemaAlternative& alternative, const JsonValue& value,
                                 bool with_formats);
  absl::StatusOr<bool> AllowsArray(const ArraySchema& schema, const JsonValue& value,
                                   bool with_formats);
  absl::StatusOr<bool> AllowsObject(const ObjectSchema& schema, const JsonValue& value,
                                    bool with_formats);
  absl::StatusOr<bool> ContainsEnough(const JsonValue& schema, const JsonValue& value);

  SchemaForms& forms_;
  uint32_t depth_ = 0;  // of IsEmpty
};

}  // namespace specd::grammar
