// ConstantValidator decides whether a constant satisfies a schema, for const and enum beside other
// keywords.
//
// UNIMPLEMENTED: the answer depends on a keyword that is not evaluated. Formats count only where
// the caller asks for it (StringSchema says why).
#pragma once

#include "absl/status/statusor.h"
#include "speculative/grammar/json_schema/allowed_values.h"

namespace specd::grammar {

class ConstantValidator {
 public:
  // `source` must outlive this; it gives the values of items and properties.
  explicit ConstantValidator(ValueSource* source) : source_(*source) {}

  absl::StatusOr<bool> AllowsOne(const SchemaAlternative& alternative, const JsonValue& value,
                                 bool with_formats);

 private:
  absl::StatusOr<bool> Allows(const SchemaSet& set, const JsonValue& value, bool with_formats);
  absl::StatusOr<bool> Allows(const AllowedValues& allowed, const JsonValue& value,
                              bool with_formats);
  absl::StatusOr<bool> AllowsArray(const ArraySchema& schema, const JsonValue& value,
                                   bool with_formats);
  absl::StatusOr<bool> AllowsObject(const ObjectSchema& schema, const JsonValue& value,
                                    bool with_formats);
  absl::StatusOr<bool> ContainsEnough(const ContainedItems& contained, const JsonValue& value,
                                      bool with_formats);
  absl::StatusOr<bool> HasNeeded(const NeededMember& needed, const JsonValue& value,
                                 bool with_formats);

  ValueSource& source_;
  bool is_exact_ = true;  // nothing was dropped from what was asked
};

}  // namespace specd::grammar
