#include "speculative/grammar/compiler/front_ends.h"

#include <string_view>
#include <utility>

#include "speculative/grammar/front_ends/choice.h"
#include "speculative/grammar/front_ends/ebnf.h"
#include "speculative/grammar/front_ends/regex.h"
#include "speculative/grammar/front_ends/structural_tag.h"
#include "speculative/grammar/json_schema/json_schema.h"
#include "speculative/grammar/rules/grammar_rules.h"

namespace specd::grammar {
namespace {

// The formats inside a structural tag.
StructuralTagOptions PartsOf(const JsonSchemaOptions& json) {
  const auto schemas_with = [](const JsonSchemaOptions& options) {
    return
        [options](std::string_view text, GrammarRules* rules, std::vector<std::string>* warnings) {
          return BuildJsonSchema(text, options, rules, warnings);
        };
  };
  JsonSchemaOptions any_order = json;
  any_order.key_order = KeyOrder::kAny;
  return {.build_schema = schemas_with(json),
          .build_schema_in_any_order = schemas_with(any_order),
          .build_regex = [](std::string_view text, GrammarRules* rules, std::vector<std::string>*) {
            return ParseRegex(text, {}, rules);
          }};
}

absl::StatusOr<ExprId> BuildRoot(const GrammarRequest& request, GrammarRules* rules,
                                 std::vector<std::string>* warnings) {
  const JsonSchemaOptions json = {
      .whitespace = request.whitespace, .key_order = request.key_order, .lenient = request.lenient};
  switch (request.kind) {
    case GrammarKind::kNone:
      break;
    case GrammarKind::kJsonSchema:
      return BuildJsonSchema(request.text, json, rules, warnings);
    case GrammarKind::kJsonObject:
      if (!request.text.empty()) {
        return absl::InvalidArgumentError("json_object takes no text; give a schema as json");
      }
      return BuildJsonObject(request.whitespace, rules);
    case GrammarKind::kRegex:
      return ParseRegex(request.text, {.search = false}, rules);
    case GrammarKind::kEbnf:
      return ParseEbnf(request.text, {}, rules);
    case GrammarKind::kChoice:
      return BuildChoice(request.text, rules);
    case GrammarKind::kStructuralTag:
      return BuildStructuralTag(request.text, PartsOf(json), rules, warnings);
  }
  return absl::InvalidArgumentError("grammar_kind = none has nothing to compile");
}

}  // namespace

absl::StatusOr<Network> BuildNetwork(const GrammarRequest& request, const ByteSet& spelled_bytes,
                                     std::vector<std::string>* warnings) {
  GrammarRules rules;
  absl::StatusOr<ExprId> body = BuildRoot(request, &rules, warnings);
  if (!body.ok()) return body.status();
  const RuleId root = rules.AddRule("the constraint");
  rules.Define(root, *body);
  rules.SetRoot(root);
  absl::StatusOr<Network> network = Network::Build(rules, spelled_bytes);
  if (network.ok() && network->is_never()) {
    return absl::InvalidArgumentError(
        spelled_bytes == ByteSet::All()
            ? "no text satisfies the constraint"
            : "no text that the tokenizer's tokens can spell satisfies the constraint");
  }
  return network;
}

}  // namespace specd::grammar
