// ArrayBuilder writes the rules of the arrays that a schema allows, for SchemaBuilder.
//
// Items that must all be different are the keys of a frame rule (frame_rule.h), if their values are
// a finite list. Used for one array, or for several.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/json_schema/json_text.h"
#include "speculative/grammar/json_schema/schema_document.h"
#include "speculative/grammar/json_schema/schema_evaluator.h"

namespace specd::grammar {

class ArrayBuilder {
 public:
  // The text of what satisfies a set.
  using ExprFor = std::function<absl::StatusOr<ExprId>(const SchemaSet&)>;

  // All outlive the builder.
  ArrayBuilder(JsonText* text, SchemaEvaluator* evaluator, SchemaReport* report,
               GrammarRules* rules, ExprFor expr_for)
      : text_(*text),
        evaluator_(*evaluator),
        report_(*report),
        rules_(*rules),
        expr_for_(std::move(expr_for)) {}

  // `set` is the place of the array.
  absl::StatusOr<ExprId> Build(const SchemaSet& set, const ArraySchema& array);

 private:
  // False: `contains` is dropped, because the counts would need too many rules.
  absl::StatusOr<bool> CountsContained(const SchemaSet& set, const ArraySchema& array);
  // The items, with the commas between them, if the array says how many of them satisfy a schema.
  absl::StatusOr<ExprId> BuildContaining(const SchemaSet& set, const ArraySchema& array);
  // The values that each item may have. None: the `uniqueItems` of `place` is dropped.
  absl::StatusOr<std::optional<List<std::string>>> DifferentItems(const JsonValue& place,
                                                                  const ArraySchema& array);
  ExprId BuildDifferent(const List<std::string>& texts, const ArraySchema& array);
  // The array with `items`, or, if it may be, without any.
  ExprId Whole(ExprId items, const ArraySchema& array);

  JsonText& text_;
  SchemaEvaluator& evaluator_;
  SchemaReport& report_;
  GrammarRules& rules_;
  const ExprFor expr_for_;
};

}  // namespace specd::grammar
