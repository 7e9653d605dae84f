// AllowedValues holds the meaning of a schema as alternatives of one type each. A value that
// satisfies one alternative satisfies the schema.
//
// Keywords of a schema apply to values of one type, so a conjunction is done type by type, and
// anyOf is a longer list. Alternatives may overlap. Plain data.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/json_value.h"
#include "speculative/grammar/json_schema/container_schemas.h"
#include "speculative/grammar/json_schema/dfa_table.h"
#include "speculative/grammar/json_schema/number_schema.h"
#include "speculative/grammar/json_schema/schema_set.h"
#include "speculative/grammar/json_schema/string_schema.h"

namespace specd::grammar {

struct SchemaAlternative {
  JsonType type = JsonType::kNull;
  // The only value, if it is not null; nothing below constrains it further.
  const JsonValue* constant = nullptr;
  // A format, which only narrows what is offered, does not allow the constant.
  bool is_constant_unoffered = false;

  bool allows_true = true;  // a boolean
  bool allows_false = true;
  NumberSchema number = {};
  StringSchema string = {};
  ArraySchema array = {};
  ObjectSchema object = {};

  // Every value of the type is allowed.
  bool IsUnconstrained() const;
  // True only if every value of `other` is allowed here, as one look at the lists shows.
  bool Includes(const SchemaAlternative& other) const;
};

struct AllowedValues {
  List<SchemaAlternative> alternatives = {};
  // Nothing was dropped from it, so its complement is exact too.
  bool is_exact = true;

  // Drops alternatives whose values others allow, so that branches which include each other do not
  // multiply.
  void Absorb();
};

inline constexpr JsonType kJsonTypes[] = {JsonType::kNull,   JsonType::kBoolean, JsonType::kNumber,
                                          JsonType::kString, JsonType::kArray,   JsonType::kObject};

// Any value at all.
AllowedValues AnyValue();

// Gives the values that the schemas of items and properties allow.
class ValueSource {
 public:
  using Shared = std::shared_ptr<const AllowedValues>;

  // The values that satisfy all terms. ABORTED: a term is being evaluated, so the schema refers to
  // itself without a property or an item between.
  virtual absl::StatusOr<Shared> Of(const SchemaSet& set) = 0;
  virtual absl::StatusOr<Shared> OfTerm(const SchemaTerm& term) = 0;
  virtual DfaTable& dfas() = 0;

 protected:
  ~ValueSource() = default;
};

}  // namespace specd::grammar
