// BuildJsonSchema compiles a JSON Schema to grammar rules: exact, or refused by name.
//
// No text of the result violates the schema. The result offers one spelling where JSON has several:
// declared properties in their order and before all others, unless KeyOrder::kAny is asked for,
// names and constants without needless escapes, whole numbers without exponent. Drafts 4 to 2020-12
// are read alike, except that 1.0 is no integer to draft 4. A format that the standard names
// constrains; another one is a warning. A keyword that cannot be enforced exactly is UNIMPLEMENTED,
// with its JSON pointer; lenient mode drops it and says so. INVALID_ARGUMENT: the schema is wrong,
// or no value satisfies it. RESOURCE_EXHAUSTED: it is past a limit.
//
//   std::vector<std::string> warnings;
//   auto root = BuildJsonSchema(R"({"type": "integer", "minimum": 0})", {}, &rules, &warnings);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/grammar_request.h"
#include "speculative/grammar/json_schema/schema_builder.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {

absl::StatusOr<ExprId> BuildJsonSchema(std::string_view json, const JsonSchemaOptions& options,
                                       GrammarRules* rules, std::vector<std::string>* warnings);

// Any JSON object, and any JSON value.
ExprId BuildJsonObject(Whitespace whitespace, GrammarRules* rules);
ExprId BuildJsonValue(Whitespace whitespace, GrammarRules* rules);

}  // namespace specd::grammar
