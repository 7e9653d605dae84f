// TypeKeywords reads the keywords of one schema object that constrain a type of their own: type,
// bounds, lengths, patterns, items, properties.
//
// Keywords that combine schemas (allOf, $ref, not, ...) belong to SchemaEvaluator. The reader
// checks the values of keywords, and names the place of a wrong one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/json_schema/allowed_values.h"
#include "speculative/grammar/json_schema/dfa_table.h"
#include "speculative/grammar/json_schema/schema_document.h"

namespace specd::grammar {

class TypeKeywords {
 public:
  TypeKeywords(SchemaReport* report, DfaTable* dfas) : report_(*report), dfas_(*dfas) {}

  // REQUIRES: `schema` is an object.
  absl::StatusOr<AllowedValues> Read(const JsonValue& schema);

 private:
  struct Types {
    bool allowed[6] = {};  // by JsonType
    bool is_integer = false;
  };

  absl::StatusOr<Types> ReadTypes(const JsonValue& schema);
  absl::Status AddType(const JsonValue& schema, std::string_view name, Types* types);
  absl::Status ReadNumber(const JsonValue& schema, AllowedValues* allowed, NumberSchema* number);
  absl::Status ReadBound(const JsonValue& schema, bool is_upper, std::optional<NumberBound>* bound);
  absl::Status ReadString(const JsonValue& schema, AllowedValues* allowed, StringSchema* string);
  absl::Status ReadFormat(const JsonValue& schema, StringSchema* string);
  absl::Status ReadArray(const JsonValue& schema, ArraySchema* array);
  absl::Status ReadUnofferedItems(const JsonValue& schema, ArraySchema* array);
  absl::Status ReadObject(const JsonValue& schema, AllowedValues* allowed, ObjectSchema* object);
  absl::Status ReadPatternProperties(const JsonValue& schema, const SchemaSet& additional,
                                     AllowedValues* allowed, ObjectSchema* object);
  absl::Status ReadRequired(const JsonValue& schema, ObjectSchema* object);
  absl::Status ReadUnevaluated(const JsonValue& schema, ObjectSchema* object);
  // Null, and a warning, if lenient mode drops it.
  absl::StatusOr<SharedDfa> ReadPattern(const JsonValue& schema, std::string_view keyword,
                                        const std::string& pattern);

  SchemaReport& report_;
  DfaTable& dfas_;
  HashMap<std::string, SharedDfa> patterns_;
  HashSet<std::string> remarks_;  // the names of formats that are no more
};

// Refuses what is left of the keywords.
absl::Status RefuseUnoffered(const List<UnofferedKeyword>& unoffered, SchemaReport* report);

}  // namespace specd::grammar
