#include "speculative/grammar/json_schema/json_schema.h"

#include "absl/status/status.h"
#include "speculative/grammar/json_schema/json_text.h"
#include "speculative/grammar/json_schema/schema_builder.h"
#include "speculative/grammar/json_schema/schema_document.h"
#include "speculative/grammar/json_schema/schema_evaluator.h"

namespace specd::grammar {

absl::StatusOr<ExprId> BuildJsonSchema(std::string_view json, const JsonSchemaOptions& options,
                                       GrammarRules* rules, std::vector<std::string>* warnings) {
  const absl::StatusOr<SchemaDocument> document = SchemaDocument::Parse(json);
  if (!document.ok()) return document.status();
  if (!document->root().IsSchema()) {
    return SchemaReport::Invalid(document->root(),
                                 "the schema is neither an object nor true or false");
  }
  SchemaReport report(options.lenient, warnings);
  SchemaEvaluator evaluator(&*document, &report);
  absl::StatusOr<ExprId> root =
      SchemaBuilder(options, &evaluator, &report, rules).Build(document->root());
  if (root.status().code() == absl::StatusCode::kAborted) {
    return absl::InvalidArgumentError(root.status().message());
  }
  return root;
}

ExprId BuildJsonObject(Whitespace whitespace, GrammarRules* rules) {
  return JsonText(whitespace, rules).Object();
}

ExprId BuildJsonValue(Whitespace whitespace, GrammarRules* rules) {
  return JsonText(whitespace, rules).Value();
}

}  // namespace specd::grammar
