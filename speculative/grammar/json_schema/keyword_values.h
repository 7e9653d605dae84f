// Functions that read the value of one keyword of a schema object, for TypeKeywords and
// SchemaEvaluator.
//
// An absent keyword is no error. A value of the wrong type is INVALID_ARGUMENT, with the JSON
// pointer of the place. Pure functions, for any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/json_value.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

// The error of a value that is not as `expected`.
absl::Status WrongKeywordType(const JsonValue& schema, std::string_view keyword,
                              const JsonValue& value, std::string_view expected);

bool HasAnyKeyword(const JsonValue& schema, std::initializer_list<std::string_view> keywords);

// The value if the keyword is there, otherwise null. It is a list of schemas, one schema, or an
// object.
absl::StatusOr<const JsonValue*> FindSchemaList(const JsonValue& schema, std::string_view keyword);
absl::StatusOr<const JsonValue*> FindSubSchema(const JsonValue& schema, std::string_view keyword);
absl::StatusOr<const JsonValue*> FindMembers(const JsonValue& schema, std::string_view keyword);

// The largest count. A larger maximum is past every text, so it is no bound: kUnbounded. A larger
// minimum is RESOURCE_EXHAUSTED.
inline constexpr uint32_t kSchemaCountMax = kUnbounded - 2;

// A count such as minItems; `count` keeps its value if the keyword is absent.
absl::Status ReadSchemaCount(const JsonValue& schema, std::string_view keyword, uint32_t* count);

}  // namespace specd::grammar
