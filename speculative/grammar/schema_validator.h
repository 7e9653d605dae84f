// SchemaValidator decides whether a constant satisfies a schema, for const and enum beside other
// keywords.
//
// UNIMPLEMENTED: the answer depends on a keyword that is not evaluated. Formats count only where
// the caller asks for it (StringSchema says why).
#pragma once

#include "absl/status/statusor.h"
#include "speculative/grammar/schema_form.h"

namespace specd::grammar {

class SchemaForms;

class SchemaValidator {
 public:
  // `forms` must outlive this; it gives the forms of items and properties.
  explicit SchemaValidator(SchemaForms* forms) : forms_(*forms) {}

  absl::StatusOr<bool> AllowsOne(const SchemaAlternative& alternative, const JsonValue& value,
                                 bool with_formats);

 private:
  absl::StatusOr<bool> Allows(const SchemaSet& set, const JsonValue& value, bool with_formats);
  absl::StatusOr<bool> Allows(const SchemaForm& form, const JsonValue& value, bool with_formats);
  absl::StatusOr<bool> AllowsArray(const ArraySchema& schema, const JsonValue& value,
                                   bool with_formats);
  absl::StatusOr<bool> AllowsObject(const ObjectSchema& schema, const JsonValue& value,
                                    bool with_formats);
  absl::StatusOr<bool> ContainsEnough(const ContainedItems& contained, const JsonValue& value,
                                      bool with_formats);
  absl::StatusOr<bool> HasNeeded(const NeededMember& needed, const JsonValue& value,
                                 bool with_formats);

  SchemaForms& forms_;
  bool is_exact_ = true;  // nothing was dropped from the forms that were asked
};

}  // namespace specd::grammar
