#include "speculative/grammar/schema_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/check.h"
#include "speculative/grammar/counted.h"

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
  const Budget::Place place(&PlaceOf(set));
  const absl::StatusOr<SchemaForms::Shared> form = forms_.Of(set);
  if (!form.ok()) return form.status();
  List<SchemaAlternative> alternatives;
  for (const SchemaAlternative& alternative : (*form)->alternatives) {
    const absl::StatusOr<bool> is_empty = forms_.logic().IsEmpty(alternative);
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
  const Budget::Place place(&PlaceOf(pending.set));
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
      scalar = BuildString(alternative.string, &text_);
      if (scalar.ok()) return scalar;
      break;
    case JsonType::kArray:
      return BuildArray(set, alternative.array);
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

absl::Status SchemaBuilder::RefuseUnoffered(const List<UnofferedKeyword>& unoffered) {
  for (const UnofferedKeyword& keyword : unoffered) {
    const std::string_view why =
        keyword.keyword == "uniqueItems" ? "a grammar does not remember earlier items"
        : keyword.keyword == "contains"  ? "a grammar does not count matching items"
                                         : "it depends on what other keywords have seen";
    const absl::Status status = report_.Refuse(*keyword.schema, keyword.keyword, why);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<ExprId> SchemaBuilder::BuildArray(const SchemaSet& set, const ArraySchema& array) {
  if (array.IsUnconstrained()) return text_.Array();
  const bool has_one_item =
      array.max_items <= 1 &&
      std::all_of(array.unoffered.begin(), array.unoffered.end(),
                  [](const UnofferedKeyword& one) { return one.keyword == "uniqueItems"; });
  if (!has_one_item) {
    const absl::Status status = RefuseUnoffered(array.unoffered);
    if (!status.ok()) return status;
  }
  List<ExprId> items;
  for (size_t i = 0; i < std::max<size_t>(array.prefix.size(), 1); ++i) {
    if (i > 0 && i >= array.max_items) break;
    const absl::StatusOr<ExprId> item = ExprFor(array.Item(i));
    if (!item.ok()) return item;
    items.push_back(*item);
  }
  const auto num_items = static_cast<uint32_t>(items.size());
  ExprId tail = rules_.Empty();
  if (num_items < array.max_items) {
    const absl::StatusOr<ExprId> rest = ExprFor(array.rest);
    if (!rest.ok()) return rest;
    const uint32_t min = array.min_items > num_items ? array.min_items - num_items : 0;
    const uint32_t max = array.max_items == kUnbounded ? kUnbounded : array.max_items - num_items;
    tail = rules_.Repeat(rules_.Sequence({text_.Comma(), *rest}), min, max);
  }
  // Deeper nesting becomes rules, so that no expression is deep.
  constexpr uint32_t kInlineItemsMax = 16;
  for (uint32_t i = num_items; i-- > 1;) {
    const ExprId from_here = rules_.Sequence({text_.Comma(), items[i], tail});
    if (i < array.min_items) {
      tail = from_here;
      continue;
    }
    tail = rules_.Optional(from_here);
    if (num_items > kInlineItemsMax && tail != rules_.Empty()) {
      const RuleId rule = rules_.AddRule(fmt::format("{} from {}", PointerOf(PlaceOf(set)), i));
      rules_.Define(rule, tail);
      tail = rules_.Call(rule);
    }
  }
  ExprId body = rules_.Never();
  if (array.max_items > 0) body = rules_.Sequence({items[0], tail, text_.Space()});
  if (array.min_items == 0) body = rules_.Optional(body);
  return rules_.Sequence({text_.Open('['), body, rules_.Literal("]")});
}

absl::StatusOr<ExprId> SchemaBuilder::BuildOthers(const SchemaSet& set,
                                                  const ObjectSchema& object) {
  List<std::string_view> declared;
  for (const PropertySchema& property : object.properties) declared.push_back(property.name);
  ByteDfa excluded;
  List<ExprId> others;
  for (const NameClass& other : object.others) {
    const absl::StatusOr<ExprId> value = ExprFor(other.schemas);
    if (!value.ok()) return value;
    if (*value == rules_.Never()) continue;
    if (other.names == nullptr && declared.empty()) {
      others.push_back(rules_.Sequence({text_.String(), text_.Colon(), *value}));
      continue;
    }
    absl::StatusOr<ByteDfa> names = other.names == nullptr ? AllStrings() : *other.names;
    if (names.ok() && !declared.empty()) {
      const absl::StatusOr<ByteDfa> these = TheseStrings(declared);
      names = these.ok() ? Subtract(*names, *these) : these.status();
    }
    if (!names.ok()) {
      return absl::ResourceExhaustedError(
          fmt::format("{}: the names of the additional properties need too many states; use "
                      "additionalProperties false",
                      PointerOf(PlaceOf(set))));
    }
    if (names->IsEmpty()) continue;
    others.push_back(rules_.Sequence({text_.String(*names), text_.Colon(), *value}));
  }
  const ExprId other = rules_.AnyOf(others);
  if (other == rules_.Never()) return other;
  const RuleId rule = rules_.AddRule(PointerOf(PlaceOf(set)) + " additional");
  rules_.Define(rule, other);
  return rules_.Call(rule);
}

absl::StatusOr<ExprId> SchemaBuilder::BuildObject(const SchemaSet& set,
                                                  const ObjectSchema& object) {
  if (object.IsUnconstrained()) return text_.Object();
  if (absl::Status status = RefuseUnoffered(object.unoffered); !status.ok()) return status;
  Members members = {.separator = text_.Comma(),
                     .min = std::max<uint32_t>(object.min_properties, 1),
                     .max = object.max_properties};
  uint32_t min_properties = object.min_properties;
  uint32_t num_required = 0;
  for (const PropertySchema& property : object.properties) {
    const absl::StatusOr<ExprId> value = ExprFor(property.schemas);
    if (!value.ok()) return value;
    if (*value == rules_.Never()) {
      if (property.is_required) return rules_.Never();
      continue;
    }
    num_required += property.is_required ? 1 : 0;
    members.keys.push_back(
        {QuoteJson(property.name), rules_.Sequence({text_.Colon(), *value}), property.is_required});
  }
  const absl::StatusOr<ExprId> other = BuildOthers(set, object);
  if (!other.ok()) return other;
  members.other = *other;
  if (*other == rules_.Never() && members.max >= members.keys.size()) members.max = kUnbounded;
  if (*other != rules_.Never() && members.min > num_required + 1) {
    const absl::Status status = report_.Refuse(
        PlaceOf(set), "minProperties",
        fmt::format("{} of its names are free and may repeat, so they cannot be counted; list "
                    "more properties under required",
                    members.min - num_required));
    if (!status.ok()) return status;
    members.min = 1;
    min_properties = 0;
  }
  const bool may_be_empty = num_required == 0 && min_properties == 0;
  const uint32_t max = members.max;
  ExprId body = max == 0 || num_required > max
                    ? rules_.Never()
                    : rules_.Sequence({rules_.MembersOf(std::move(members)), text_.Space()});
  if (may_be_empty) body = rules_.Optional(body);
  return rules_.Sequence({text_.Open('{'), body, rules_.Literal("}")});
}

}  // namespace specd::grammar
