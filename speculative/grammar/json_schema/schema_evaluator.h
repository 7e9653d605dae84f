// SchemaEvaluator turns the places of a schema document into AllowedValues, each once.
//
// It applies the keywords that combine schemas: $ref, enum, const, allOf, anyOf, oneOf, not, if,
// dependentRequired, propertyNames. A keyword that cannot be exact is refused through SchemaReport.
// The schema of an item or property stays a set of places. Recursion through them therefore ends.
// Schemas that refer to each other recurse here, one Budget::Level each. Not thread-safe.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/json_schema/allowed_values.h"
#include "speculative/grammar/json_schema/dfa_table.h"
#include "speculative/grammar/json_schema/schema_document.h"
#include "speculative/grammar/json_schema/schema_set.h"
#include "speculative/grammar/json_schema/type_keywords.h"
#include "speculative/grammar/json_schema/value_algebra.h"

namespace specd::grammar {

// Schemas that one document may make.
inline constexpr size_t kSubschemasMax = 65536;

class SchemaEvaluator final : public ValueSource {
 public:
  // Both must outlive this.
  SchemaEvaluator(const SchemaDocument* document, SchemaReport* report)
      : document_(*document), report_(*report), reader_(report, &dfas_), algebra_(this) {}

  absl::StatusOr<Shared> Of(const SchemaSet& set) override;
  absl::StatusOr<Shared> OfTerm(const SchemaTerm& term) override;

  ValueAlgebra& algebra() { return algebra_; }
  DfaTable& dfas() override { return dfas_; }

 private:
  // The term (schema, is_negated) as one number.
  using Key = uint64_t;

  absl::StatusOr<AllowedValues> Make(const SchemaTerm& term);
  absl::StatusOr<AllowedValues> MakeObject(const JsonValue& schema);
  // Narrows `allowed` to `other`; a failure that a drop can answer refuses `keyword`.
  absl::Status Narrow(const JsonValue& schema, std::string_view keyword,
                      const absl::StatusOr<AllowedValues>& other, AllowedValues* allowed);
  // Drops alternatives that no value satisfies, and those whose values others allow, so that
  // branches which exclude or include each other do not multiply.
  absl::Status Prune(AllowedValues* allowed);
  absl::Status ApplyRef(const JsonValue& schema, AllowedValues* allowed);
  absl::Status ApplyConstants(const JsonValue& schema, AllowedValues* allowed);
  absl::Status ApplyAllOf(const JsonValue& schema, AllowedValues* allowed);
  absl::Status ApplyAnyOf(const JsonValue& schema, AllowedValues* allowed);
  absl::Status ApplyOneOf(const JsonValue& schema, AllowedValues* allowed);
  absl::Status ApplyNot(const JsonValue& schema, AllowedValues* allowed);
  absl::Status ApplyIf(const JsonValue& schema, AllowedValues* allowed);
  absl::Status ApplyDependents(const JsonValue& schema, std::string_view keyword,
                               AllowedValues* allowed);
  absl::Status ApplyPropertyNames(const JsonValue& schema, AllowedValues* allowed);
  absl::Status RefuseDynamic(const JsonValue& schema, AllowedValues* allowed);

  absl::StatusOr<AllowedValues> OneOf(const JsonValue& branches);
  absl::StatusOr<AllowedValues> DependentValues(const JsonValue& schema, std::string_view keyword,
                                                std::string_view name, const JsonValue& dependent);
  absl::StatusOr<AllowedValues> NamedObjects(const JsonValue& names);

  const SchemaDocument& document_;
  SchemaReport& report_;
  DfaTable dfas_;
  TypeKeywords reader_;
  ValueAlgebra algebra_;
  HashMap<Key, Shared> known_;
  HashMap<SchemaSet, Shared> merged_;  // of sets with more than one term
  HashSet<Key> in_progress_;
};

}  // namespace specd::grammar
