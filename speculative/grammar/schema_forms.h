// SchemaForms turns the places of a schema document into SchemaForm, each once.
//
// It applies the keywords that combine schemas: $ref, enum, const, allOf, anyOf, oneOf, not, if,
// dependentRequired, propertyNames. A keyword that cannot be exact is refused through SchemaReport.
// The schema of an item or property stays a set of places. Recursion through them therefore ends.
// Schemas that refer to each other recurse here, one Budget::Level each. Not thread-safe.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/dfa_table.h"
#include "speculative/grammar/hash_tables.h"
#include "speculative/grammar/schema_document.h"
#include "speculative/grammar/schema_form.h"
#include "speculative/grammar/schema_logic.h"
#include "speculative/grammar/schema_reader.h"
#include "speculative/grammar/schema_terms.h"

namespace specd::grammar {

// Schemas that one document may make.
inline constexpr size_t kSubschemasMax = 65536;

class SchemaForms {
 public:
  // Both must outlive this.
  SchemaForms(const SchemaDocument* document, SchemaReport* report)
      : document_(*document), report_(*report), reader_(report, &dfas_), logic_(this) {}

  using Shared = std::shared_ptr<const SchemaForm>;

  // Returns the form that satisfies all terms. ABORTED: the form of a term is being made, so the
  // schema refers to itself without a property or an item between.
  absl::StatusOr<Shared> Of(const SchemaSet& set);
  absl::StatusOr<Shared> OfTerm(const SchemaTerm& term);

  SchemaLogic& logic() { return logic_; }
  DfaTable& dfas() { return dfas_; }

 private:
  // The term (schema, is_negated) as one number.
  using Key = uint64_t;

  absl::StatusOr<SchemaForm> Make(const SchemaTerm& term);
  absl::StatusOr<SchemaForm> MakeObject(const JsonValue& schema);
  // Narrows `form` to `other`; a failure that a drop can answer refuses `keyword`.
  absl::Status Narrow(const JsonValue& schema, std::string_view keyword,
                      const absl::StatusOr<SchemaForm>& other, SchemaForm* form);
  // Drops alternatives that no value satisfies, and those whose values others allow, so that
  // branches which exclude or include each other do not multiply.
  absl::Status Prune(SchemaForm* form);
  absl::Status ApplyRef(const JsonValue& schema, SchemaForm* form);
  absl::Status ApplyConstants(const JsonValue& schema, SchemaForm* form);
  absl::Status ApplyAllOf(const JsonValue& schema, SchemaForm* form);
  absl::Status ApplyAnyOf(const JsonValue& schema, SchemaForm* form);
  absl::Status ApplyOneOf(const JsonValue& schema, SchemaForm* form);
  absl::Status ApplyNot(const JsonValue& schema, SchemaForm* form);
  absl::Status ApplyIf(const JsonValue& schema, SchemaForm* form);
  absl::Status ApplyDependents(const JsonValue& schema, std::string_view keyword, SchemaForm* form);
  absl::Status ApplyPropertyNames(const JsonValue& schema, SchemaForm* form);
  absl::Status RefuseDynamic(const JsonValue& schema, SchemaForm* form);

  absl::StatusOr<SchemaForm> OneOf(const JsonValue& branches);
  absl::StatusOr<SchemaForm> DependentForm(const JsonValue& schema, std::string_view keyword,
                                           std::string_view name, const JsonValue& dependent);
  absl::StatusOr<SchemaForm> NamesForm(const JsonValue& names);

  const SchemaDocument& document_;
  SchemaReport& report_;
  DfaTable dfas_;
  SchemaReader reader_;
  SchemaLogic logic_;
  HashMap<Key, Shared> forms_;
  HashMap<SchemaSet, Shared> merged_;  // of sets with more than one term
  HashSet<Key> in_progress_;
};

}  // namespace specd::grammar
