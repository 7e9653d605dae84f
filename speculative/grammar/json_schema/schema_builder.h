// SchemaBuilder writes the rules of a schema: one for each set of places that an instance must
// satisfy.
//
// A queue, not the stack, holds the sets that are still to be built, so a chain of references of
// any length is safe. Used once.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/grammar_request.h"
#include "speculative/grammar/json_schema/json_text.h"
#include "speculative/grammar/json_schema/schema_document.h"
#include "speculative/grammar/json_schema/schema_evaluator.h"

namespace specd::grammar {

struct JsonSchemaOptions {
  Whitespace whitespace = Whitespace::kFlexible;
  KeyOrder key_order = KeyOrder::kSchema;
  bool lenient = false;
};

class SchemaBuilder {
 public:
  SchemaBuilder(const JsonSchemaOptions& options, SchemaEvaluator* evaluator, SchemaReport* report,
                GrammarRules* rules)
      : any_order_(options.key_order == KeyOrder::kAny),
        evaluator_(*evaluator),
        report_(*report),
        rules_(*rules),
        text_(options.whitespace, rules),
        strings_(&text_) {}

  absl::StatusOr<ExprId> Build(const JsonValue& root);

 private:
  struct Pending {
    SchemaSet set;
    List<SchemaAlternative> alternatives;
    RuleId rule = kNoRule;
  };

  // The text of what satisfies `set`: Never if nothing can.
  absl::StatusOr<ExprId> ExprFor(const SchemaSet& set);
  absl::Status BuildPending(const Pending& pending);
  absl::StatusOr<ExprId> BuildAlternative(const SchemaSet& set,
                                          const SchemaAlternative& alternative);
  absl::StatusOr<ExprId> BuildObject(const SchemaSet& set, const ObjectSchema& object);
  // `name : value` of the names that are not declared, and that meet the need if there is one.
  absl::StatusOr<ExprId> BuildOthers(const SchemaSet& set, const ObjectSchema& object,
                                     const NeededMember* needed);
  // Takes the needs that other keywords meet out of the object. If more than one is left, refuses.
  absl::Status SimplifyNeeds(const SchemaSet& set, ObjectSchema* object);
  absl::StatusOr<Members> ReadMembers(const SchemaSet& set, const ObjectSchema& object);
  // The names of a class that meet the need, as they are spelled, without their quotes.
  absl::StatusOr<SharedDfa> SpelledNames(const SharedDfa& names, const NeededMember* needed);

  const bool any_order_;
  SchemaEvaluator& evaluator_;
  SchemaReport& report_;
  GrammarRules& rules_;
  JsonText text_;
  StringWriter strings_;
  std::map<SchemaSet, ExprId> exprs_;
  // Many alternatives of one schema have the same names and the same others.
  std::map<std::pair<SharedDfa, SharedDfa>, SharedDfa> spelled_;
  std::map<std::pair<SharedDfa, List<std::string>>, ExprId> other_names_;
  std::map<List<ExprId>, ExprId> others_;
  List<Pending> pending_;
};

}  // namespace specd::grammar
