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

// Numbers of items, and of those that satisfy the schema of `contains`, are told apart up to here.
uint64_t CountedItems(const ArraySchema& array) {
  return std::max<uint64_t>({1, array.prefix.size(), array.contained[0].from, array.min_items,
                             array.max_items == kUnbounded ? 0 : array.max_items});
}
uint64_t CountedMatches(const ArraySchema& array) {
  const ContainedItems& contained = array.contained[0];
  return contained.max != kUnbounded ? contained.max : contained.min;
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
      scalar = strings_.Write(alternative.string);
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
    const std::string_view why = keyword.keyword == "uniqueItems"
                                     ? "a grammar does not remember earlier items"
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
  if (!array.contained.empty()) {
    const absl::StatusOr<bool> is_counted = CountsContained(set, array);
    if (!is_counted.ok()) return is_counted.status();
    if (*is_counted) {
      const absl::StatusOr<ExprId> counted = BuildContaining(set, array);
      if (!counted.ok()) return counted;
      return rules_.Sequence({text_.Open('['), *counted, rules_.Literal("]")});
    }
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

absl::StatusOr<bool> SchemaBuilder::CountsContained(const SchemaSet& set,
                                                    const ArraySchema& array) {
  constexpr uint64_t kNodesMax = 4096;
  const std::string_view why = array.contained.size() > 1 ? "more than one schema would be counted"
                               : (CountedItems(array) + 1) * (CountedMatches(array) + 1) > kNodesMax
                                   ? "its numbers of items are too large"
                                   : "";
  if (why.empty()) return true;
  const absl::Status status = report_.Refuse(PlaceOf(set), "contains", why);
  return status.ok() ? absl::StatusOr<bool>(false) : status;
}

absl::StatusOr<ExprId> SchemaBuilder::BuildContaining(const SchemaSet& set,
                                                      const ArraySchema& array) {
  const ContainedItems& contained = array.contained[0];
  const bool has_most = contained.max != kUnbounded;
  const uint64_t items_max = CountedItems(array);
  const uint64_t found_max = CountedMatches(array);
  // The last rules come first, so that none is called before it is there; the loops are at the end.
  const auto index = [&](uint64_t items, uint64_t found) {
    return static_cast<size_t>(items * (found_max + 1) + found);
  };
  List<RuleId> rules((items_max + 1) * (found_max + 1));
  for (RuleId& rule : rules) rule = rules_.AddRule(PointerOf(PlaceOf(set)) + " items");
  for (uint64_t items = 0; items <= items_max; ++items) {
    const SchemaSet& any = array.Item(items);
    const absl::StatusOr<ExprId> match = ExprFor(UniteSets(any, contained.schemas));
    if (!match.ok()) return match;
    // With a least number alone, an item that satisfies the schema need not be counted.
    List<SchemaSet> misses = {any};
    if (has_most && items >= contained.from) {
      misses.clear();
      for (const SchemaSet& opposite : Opposites(contained.schemas)) {
        misses.push_back(UniteSets(any, opposite));
      }
    }
    List<ExprId> miss;
    for (const SchemaSet& one : misses) {
      const absl::StatusOr<ExprId> expr = ExprFor(one);
      if (!expr.ok()) return expr;
      miss.push_back(*expr);
    }
    for (uint64_t found = 0; found <= found_max; ++found) {
      List<ExprId> ways;
      const auto add = [&](ExprId item, uint64_t next_found) {
        const ExprId rest = rules_.Call(rules[index(std::min(items + 1, items_max), next_found)]);
        const ExprId comma = items == 0 ? rules_.Empty() : text_.Comma();
        ways.push_back(rules_.Sequence({comma, item, rest}));
      };
      if (items < array.max_items) {
        for (const ExprId one : miss) add(one, found);
        const bool counts = items >= contained.from && found < found_max;
        if (counts) add(*match, found + 1);
      }
      const bool may_end = items >= array.min_items && found >= contained.min;
      if (may_end) ways.push_back(items == 0 ? rules_.Empty() : text_.Space());
      rules_.Define(rules[index(items, found)], rules_.AnyOf(ways));
    }
  }
  return rules_.Call(rules[0]);
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
  if (absl::Status status = RefuseUnoffered(schema.unoffered); !status.ok()) return status;
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
  Members members = {.separator = text_.Comma(),
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
