#include "speculative/grammar/json_schema/schema_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/check.h"
#include "speculative/grammar/automata/dfa_operations.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/json_schema/array_builder.h"
#include "speculative/grammar/rules/frame_rule.h"

namespace specd::grammar {
namespace {

std::string_view MessageOf(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

bool IsContainer(const SchemaAlternative& alternative) {
  return alternative.constant == nullptr &&
         (alternative.type == JsonType::kArray || alternative.type == JsonType::kObject);
}

// The keyword that a failure to build a scalar comes from.
std::string_view KeywordOf(const SchemaAlternative& alternative) {
  if (alternative.type == JsonType::kNumber) {
    return alternative.number.step != 0 ? "multipleOf" : "minimum or maximum";
  }
  return alternative.string.formats.empty() ? "pattern" : "format";
}

}  // namespace

absl::StatusOr<ExprId> SchemaBuilder::Build(const JsonValue& root) {
  const absl::Status unsatisfiable =
      SchemaReport::Invalid(root,
                            "no value satisfies the schema; correct the keywords that "
                            "contradict each other");
  absl::StatusOr<ExprId> expr = ExprFor(SetOf({&root}));
  if (!expr.ok()) return expr;
  const RuleId root_rule = pending_.empty() ? kNoRule : pending_[0].rule;
  while (!pending_.empty()) {
    const Pending pending = std::move(pending_.back());
    pending_.pop_back();
    const absl::Status status = BuildPending(pending);
    if (!status.ok()) return status;
  }
  if (*expr == rules_.Never()) return unsatisfiable;
  if (root_rule != kNoRule && rules_.body(root_rule) == rules_.Never()) return unsatisfiable;
  return expr;
}

absl::StatusOr<ExprId> SchemaBuilder::ExprFor(const SchemaSet& set) {
  if (set.empty()) return text_.Value();
  if (IsNothing(set)) return rules_.Never();
  if (const auto known = exprs_.find(set); known != exprs_.end()) return known->second;
  if (exprs_.size() >= kSubschemasMax) {
    return absl::ResourceExhaustedError(fmt::format(
        "merging makes more than {} schemas of this one; use fewer allOf", kSubschemasMax));
  }
  const Budget::Place place = BudgetPlace(PlaceOf(set));
  const absl::StatusOr<SchemaEvaluator::Shared> allowed = evaluator_.Of(set);
  if (!allowed.ok()) return allowed.status();
  List<SchemaAlternative> alternatives;
  for (const SchemaAlternative& alternative : (*allowed)->alternatives) {
    const absl::StatusOr<bool> is_empty = evaluator_.algebra().IsEmpty(alternative);
    if (!is_empty.ok()) return is_empty.status();
    if (!*is_empty) alternatives.push_back(alternative);
  }
  const bool is_anything =
      alternatives.size() == std::size(kJsonTypes) &&
      std::all_of(alternatives.begin(), alternatives.end(), [&](const SchemaAlternative& one) {
        return one.IsUnconstrained() && std::count_if(alternatives.begin(), alternatives.end(),
                                                      [&](const SchemaAlternative& other) {
                                                        return other.type == one.type;
                                                      }) == 1;
      });
  ExprId expr = rules_.Never();
  if (is_anything) {
    expr = text_.Value();
  } else if (std::any_of(alternatives.begin(), alternatives.end(), IsContainer)) {
    const RuleId rule = rules_.AddRule(PointerOf(PlaceOf(set)));
    expr = rules_.Call(rule);
    pending_.push_back({set, std::move(alternatives), rule});
  } else {
    List<ExprId> scalars;
    for (const SchemaAlternative& alternative : alternatives) {
      const absl::StatusOr<ExprId> scalar = BuildAlternative(set, alternative);
      if (!scalar.ok()) return scalar.status();
      scalars.push_back(*scalar);
    }
    expr = rules_.AnyOf(scalars);
  }
  exprs_[set] = expr;
  return expr;
}

absl::Status SchemaBuilder::BuildPending(const Pending& pending) {
  const Budget::Place place = BudgetPlace(PlaceOf(pending.set));
  List<ExprId> parts;
  for (const SchemaAlternative& alternative : pending.alternatives) {
    const absl::StatusOr<ExprId> part = BuildAlternative(pending.set, alternative);
    if (!part.ok()) return part.status();
    parts.push_back(*part);
  }
  rules_.Define(pending.rule, rules_.AnyOf(parts));
  return absl::OkStatus();
}

absl::StatusOr<ExprId> SchemaBuilder::BuildAlternative(const SchemaSet& set,
                                                       const SchemaAlternative& alternative) {
  if (alternative.constant != nullptr) {
    return alternative.is_constant_unoffered ? rules_.Never()
                                             : text_.Constant(*alternative.constant);
  }
  absl::StatusOr<ExprId> scalar = rules_.Never();
  switch (alternative.type) {
    case JsonType::kNull:
      return text_.Null();
    case JsonType::kBoolean:
      if (alternative.IsUnconstrained()) return text_.Boolean();
      return rules_.Literal(alternative.allows_true ? "true" : "false");
    case JsonType::kNumber:
      scalar = BuildNumber(alternative.number, &text_, &rules_);
      if (scalar.ok()) return scalar;
      break;
    case JsonType::kString:
      scalar = strings_.Write(alternative.string);
      if (scalar.ok()) return scalar;
      break;
    case JsonType::kArray:
      return ArrayBuilder(&text_, &evaluator_, &report_, &rules_,
                          [this](const SchemaSet& items) { return ExprFor(items); })
          .Build(set, alternative.array);
    case JsonType::kObject:
      return BuildObject(set, alternative.object);
  }
  const absl::Status status =
      report_.Refuse(PlaceOf(set), KeywordOf(alternative), MessageOf(scalar.status()));
  if (!status.ok()) return status;
  return alternative.type == JsonType::kNumber
             ? BuildNumber({.kind = alternative.number.kind}, &text_, &rules_)
             : absl::StatusOr<ExprId>(text_.String());
}

absl::Status SchemaBuilder::SimplifyNeeds(const SchemaSet& set, ObjectSchema* object) {
  List<NeededMember> left;
  for (const NeededMember& needed : object->needed) {
    const auto includes = [&](const SchemaSet& schemas) {
      return std::includes(schemas.begin(), schemas.end(), needed.schemas.begin(),
                           needed.schemas.end());
    };
    List<const PropertySchema*> candidates;
    bool is_met = false;
    for (const PropertySchema& property : object->properties) {
      if (!needed.names->Accepts(property.name)) continue;
      is_met = is_met || (property.is_required && includes(property.schemas));
      if (!IsNothing(UniteSets(property.schemas, needed.schemas))) candidates.push_back(&property);
    }
    if (is_met) continue;
    const bool has_others =
        std::any_of(object->others.begin(), object->others.end(), [&](const NameClass& other) {
          return !IsNothing(UniteSets(other.schemas, needed.schemas)) &&
                 (other.names == nullptr || Overlap(*other.names, *needed.names));
        });
    if (!has_others && candidates.size() == 1) {
      const std::string_view name = candidates[0]->name;
      object->Require(name);
      object->Constrain(name, needed.schemas);
      continue;
    }
    left.push_back(needed);
  }
  object->needed = std::move(left);
  if (object->needed.size() <= 1) return absl::OkStatus();
  object->needed.clear();
  return report_.Refuse(PlaceOf(set), "negation of an object",
                        "it needs more than one member whose name is left open");
}

absl::StatusOr<SharedDfa> SchemaBuilder::SpelledNames(const SharedDfa& names,
                                                      const NeededMember* needed) {
  SharedDfa& spelled = spelled_[{names, needed == nullptr ? nullptr : needed->names}];
  if (spelled != nullptr) return spelled;
  absl::StatusOr<ByteDfa> all = names == nullptr ? AllStrings() : *names;
  if (all.ok() && needed != nullptr) all = Intersect(*all, *needed->names);
  if (!all.ok()) return all.status();
  return spelled = std::make_shared<const ByteDfa>(EscapeStrings(*all));
}

absl::StatusOr<ExprId> SchemaBuilder::BuildOthers(const SchemaSet& set, const ObjectSchema& object,
                                                  const NeededMember* needed) {
  List<std::string> declared;
  for (const PropertySchema& property : object.properties) {
    const std::string quoted = QuoteJson(property.name);
    declared.push_back(quoted.substr(1, quoted.size() - 2));
  }
  List<ExprId> others;
  List<ExprId> parts;  // of the others, to know them again
  for (const NameClass& other : object.others) {
    const absl::StatusOr<ExprId> value =
        ExprFor(needed == nullptr ? other.schemas : UniteSets(other.schemas, needed->schemas));
    if (!value.ok()) return value;
    if (*value == rules_.Never()) continue;
    if (other.names == nullptr && declared.empty() && needed == nullptr) {
      others.push_back(rules_.Sequence({text_.String(), text_.Colon(), *value}));
      parts.insert(parts.end(), {text_.String(), *value});
      continue;
    }
    const absl::StatusOr<SharedDfa> names = SpelledNames(other.names, needed);
    if (!names.ok()) {
      return absl::ResourceExhaustedError(
          fmt::format("{}: the names of the additional properties need too many states; use "
                      "additionalProperties false",
                      PointerOf(PlaceOf(set))));
    }
    const auto [known, is_new] = other_names_.try_emplace({*names, declared}, rules_.Never());
    if (is_new) known->second = rules_.Automaton(SubtractTexts(**names, declared));
    if (known->second == rules_.Never()) continue;
    const ExprId quote = rules_.Literal("\"");
    others.push_back(rules_.Sequence({quote, known->second, quote, text_.Colon(), *value}));
    parts.insert(parts.end(), {known->second, *value});
  }
  if (others.empty()) return rules_.Never();
  const auto [known, is_new] = others_.try_emplace(std::move(parts), rules_.Never());
  if (!is_new) return known->second;
  const RuleId rule = rules_.AddRule(PointerOf(PlaceOf(set)) + " additional");
  rules_.Define(rule, rules_.AnyOf(others));
  return known->second = rules_.Call(rule);
}

absl::StatusOr<ExprId> SchemaBuilder::BuildObject(const SchemaSet& set,
                                                  const ObjectSchema& schema) {
  if (schema.IsUnconstrained()) return text_.Object();
  if (absl::Status status = RefuseUnoffered(schema.unoffered, &report_); !status.ok())
    return status;
  ObjectSchema object = schema;
  if (absl::Status status = SimplifyNeeds(set, &object); !status.ok()) return status;
  absl::StatusOr<Members> members = ReadMembers(set, object);
  if (!members.ok()) return members.status();
  const auto num_required =
      static_cast<uint32_t>(std::count_if(members->keys.begin(), members->keys.end(),
                                          [](const Members::Key& key) { return key.is_required; }));
  const bool has_others = members->other != rules_.Never();
  if (!has_others && members->max >= members->keys.size()) members->max = kUnbounded;
  if (has_others && members->min > num_required + 1) {
    const absl::Status status = report_.Refuse(
        PlaceOf(set), "minProperties",
        fmt::format("{} of its names are free and may repeat, so they cannot be counted; list "
                    "more properties under required",
                    members->min - num_required));
    if (!status.ok()) return status;
    members->min = object.min_properties = 0;
  }
  if (members->has_need && members->max != kUnbounded) {
    const absl::Status status = report_.Refuse(PlaceOf(set), "maxProperties",
                                               "it stands beside a member whose name is left open");
    if (!status.ok()) return status;
    members->max = kUnbounded;
  }
  const bool may_be_empty = num_required == 0 && object.min_properties == 0 && !members->has_need;
  const bool is_never = members->max == 0 || num_required > members->max;
  ExprId body = rules_.Never();
  if (!is_never) body = rules_.Sequence({rules_.MembersOf(*std::move(members)), text_.Space()});
  if (may_be_empty) body = rules_.Optional(body);
  return rules_.Sequence({text_.Open('{'), body, rules_.Literal("}")});
}

absl::StatusOr<Members> SchemaBuilder::ReadMembers(const SchemaSet& set,
                                                   const ObjectSchema& object) {
  const NeededMember* needed = object.needed.empty() ? nullptr : &object.needed[0];
  if (any_order_ && object.properties.size() > kSetKeysMax) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: {} properties, and keys in any order are offered for at most {}; ask for "
                    "the order of the schema, or use fewer properties",
                    PointerOf(PlaceOf(set)), object.properties.size(), kSetKeysMax));
  }
  Members members = {.any_order = any_order_,
                     .separator = text_.Comma(),
                     .has_need = needed != nullptr,
                     .min = std::max<uint32_t>(object.min_properties, 1),
                     .max = object.max_properties};
  for (const PropertySchema& property : object.properties) {
    const absl::StatusOr<ExprId> value = ExprFor(property.schemas);
    if (!value.ok()) return value.status();
    Members::Key& key = members.keys.emplace_back();
    key = {.text = QuoteJson(property.name),
           .value = rules_.Sequence({text_.Colon(), *value}),
           .is_required = property.is_required};
    if (needed == nullptr || !needed->names->Accepts(property.name)) continue;
    const absl::StatusOr<ExprId> met = ExprFor(UniteSets(property.schemas, needed->schemas));
    if (!met.ok()) return met.status();
    key.needed_value = rules_.Sequence({text_.Colon(), *met});
  }
  const absl::StatusOr<ExprId> other = BuildOthers(set, object, nullptr);
  if (!other.ok()) return other.status();
  members.other = *other;
  if (needed == nullptr) return members;
  const absl::StatusOr<ExprId> needed_other = BuildOthers(set, object, needed);
  if (!needed_other.ok()) return needed_other.status();
  members.needed_other = *needed_other;
  return members;
}

}  // namespace specd::grammar
