#include "speculative/grammar/json_schema/schema_evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "speculative/grammar/automata/dfa_operations.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/json_schema/keyword_values.h"

namespace specd::grammar {
namespace {

std::string_view MessageOf(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// The object alternative is `object`; every other type is free.
AllowedValues ObjectsOnly(ObjectSchema object) {
  AllowedValues allowed;
  for (const JsonType type : kJsonTypes) {
    if (type != JsonType::kObject) allowed.alternatives.push_back({.type = type});
  }
  allowed.alternatives.push_back({.type = JsonType::kObject, .object = std::move(object)});
  return allowed;
}

}  // namespace

absl::StatusOr<SchemaEvaluator::Shared> SchemaEvaluator::Of(const SchemaSet& set) {
  if (set.size() == 1) return OfTerm(set[0]);
  if (const auto known = merged_.find(set); known != merged_.end()) return known->second;
  const Budget::Level level;
  if (!level.ok()) return Budget::Refusal();
  AllowedValues allowed = AnyValue();
  for (size_t i = 0; i < set.size(); ++i) {
    const absl::StatusOr<Shared> term = OfTerm(set[i]);
    if (!term.ok()) return term.status();
    if (i == 0) {
      allowed = **term;
      continue;
    }
    const absl::Status status = Narrow(*set[i].schema, "allOf", **term, &allowed);
    if (!status.ok()) return status;
  }
  return merged_[set] = std::make_shared<const AllowedValues>(std::move(allowed));
}

absl::StatusOr<SchemaEvaluator::Shared> SchemaEvaluator::OfTerm(const SchemaTerm& term) {
  const Key key = uint64_t{term.schema->index} * 2 + (term.is_negated ? 1 : 0);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  if (!in_progress_.insert(key).second) {
    return absl::AbortedError(
        fmt::format("{}: the schema refers to itself without a property or an item between; "
                    "remove that reference",
                    PointerOf(*term.schema)));
  }
  const absl::Cleanup leave = [&] { in_progress_.erase(key); };
  const Budget::Place place = BudgetPlace(*term.schema);
  const Budget::Level level;
  if (!level.ok()) return Budget::Refusal();
  if (known_.size() >= kSubschemasMax) {
    return absl::ResourceExhaustedError(fmt::format(
        "the schema has more than {} subschemas; split it, or use fewer", kSubschemasMax));
  }
  absl::StatusOr<AllowedValues> allowed = Make(term);
  if (!allowed.ok()) return allowed.status();
  return known_[key] = std::make_shared<const AllowedValues>(*std::move(allowed));
}

absl::StatusOr<AllowedValues> SchemaEvaluator::Make(const SchemaTerm& term) {
  if (term.is_negated) {
    const absl::StatusOr<Shared> allowed = OfTerm({.schema = term.schema});
    if (!allowed.ok()) return allowed.status();
    absl::StatusOr<AllowedValues> negated = algebra_.Not(**allowed);
    if (negated.ok()) return negated;
    const absl::Status status = report_.Refuse(
        *term.schema, "negation of this schema, which a not, an if or a oneOf asks for",
        MessageOf(negated.status()));
    if (!status.ok()) return status;
    AllowedValues anything = AnyValue();
    anything.is_exact = false;
    return anything;
  }
  if (term.schema->IsBoolean(true)) return AnyValue();
  if (term.schema->IsBoolean(false)) return AllowedValues();
  return MakeObject(*term.schema);
}

absl::StatusOr<AllowedValues> SchemaEvaluator::MakeObject(const JsonValue& schema) {
  absl::StatusOr<AllowedValues> allowed = reader_.Read(schema);
  if (!allowed.ok()) return allowed.status();
  AllowedValues* narrowed = &*allowed;
  absl::Status status = RefuseDynamic(schema, narrowed);
  if (status.ok()) status = ApplyRef(schema, narrowed);
  if (status.ok()) status = ApplyConstants(schema, narrowed);
  if (status.ok()) status = ApplyAllOf(schema, narrowed);
  if (status.ok()) status = ApplyPropertyNames(schema, narrowed);
  if (status.ok()) status = ApplyDependents(schema, "dependencies", narrowed);
  if (status.ok()) status = ApplyDependents(schema, "dependentRequired", narrowed);
  if (status.ok()) status = ApplyDependents(schema, "dependentSchemas", narrowed);
  if (status.ok()) status = ApplyAnyOf(schema, narrowed);
  if (status.ok()) status = ApplyOneOf(schema, narrowed);
  if (status.ok()) status = ApplyIf(schema, narrowed);
  if (status.ok()) status = ApplyNot(schema, narrowed);
  if (!status.ok()) return status;
  return allowed;
}

absl::Status SchemaEvaluator::Narrow(const JsonValue& schema, std::string_view keyword,
                                     const absl::StatusOr<AllowedValues>& other,
                                     AllowedValues* allowed) {
  absl::Status status = other.status();
  if (other.ok()) {
    absl::StatusOr<AllowedValues> both = algebra_.And(*allowed, *other);
    if (both.ok()) {
      *allowed = *std::move(both);
      return Prune(allowed);
    }
    status = both.status();
  }
  if (Budget::IsSpent()) return Budget::Refusal();
  const bool can_drop = status.code() == absl::StatusCode::kUnimplemented ||
                        status.code() == absl::StatusCode::kResourceExhausted;
  if (!can_drop) return status;
  allowed->is_exact = false;
  return report_.Refuse(schema, keyword, MessageOf(status));
}

absl::Status SchemaEvaluator::Prune(AllowedValues* allowed) {
  // What absorbs many makes the look into properties shorter. A few are looked into when they are
  // built.
  constexpr size_t kUnprunedMax = 32;
  allowed->Absorb();
  if (allowed->alternatives.size() <= kUnprunedMax) return absl::OkStatus();
  List<SchemaAlternative> kept;
  for (SchemaAlternative& alternative : allowed->alternatives) {
    const absl::StatusOr<bool> is_empty = algebra_.IsEmpty(alternative);
    if (!is_empty.ok()) return is_empty.status();
    if (!*is_empty) kept.push_back(std::move(alternative));
  }
  allowed->alternatives = std::move(kept);
  return absl::OkStatus();
}

absl::Status SchemaEvaluator::RefuseDynamic(const JsonValue& schema, AllowedValues* allowed) {
  for (const std::string_view keyword : {"$dynamicRef", "$recursiveRef"}) {
    if (schema.Find(keyword) == nullptr) continue;
    allowed->is_exact = false;
    const absl::Status status =
        report_.Refuse(schema, keyword, "its target depends on the way to it; use $ref");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SchemaEvaluator::ApplyRef(const JsonValue& schema, AllowedValues* allowed) {
  const JsonValue* ref = schema.Find("$ref");
  if (ref == nullptr) return absl::OkStatus();
  if (!ref->IsString()) {
    return SchemaReport::Invalid(
        schema, fmt::format("$ref is {}, expected a string", NameWithArticle(ref->type)));
  }
  const absl::StatusOr<const JsonValue*> target = document_.Resolve(ref->text, schema);
  if (!target.ok()) return Narrow(schema, "$ref", target.status(), allowed);
  const absl::StatusOr<Shared> other = OfTerm({.schema = *target});
  if (!other.ok()) return other.status();
  return Narrow(schema, "$ref", **other, allowed);
}

absl::Status SchemaEvaluator::ApplyConstants(const JsonValue& schema, AllowedValues* allowed) {
  if (const JsonValue* value = schema.Find("const"); value != nullptr) {
    const AllowedValues one = {.alternatives = {{.type = value->type, .constant = value}}};
    const absl::Status status = Narrow(schema, "const", one, allowed);
    if (!status.ok()) return status;
  }
  const JsonValue* values = schema.Find("enum");
  if (values == nullptr) return absl::OkStatus();
  if (!values->IsArray() || values->values.empty()) {
    return SchemaReport::Invalid(
        schema, fmt::format("enum is {}, expected an array of at least one value",
                            values->IsArray() ? "empty" : NameWithArticle(values->type)));
  }
  AllowedValues constants;
  for (const JsonValue& value : values->values) {
    constants.alternatives.push_back({.type = value.type, .constant = &value});
  }
  return Narrow(schema, "enum", constants, allowed);
}

absl::Status SchemaEvaluator::ApplyAllOf(const JsonValue& schema, AllowedValues* allowed) {
  const absl::StatusOr<const JsonValue*> branches = FindSchemaList(schema, "allOf");
  if (!branches.ok() || *branches == nullptr) return branches.status();
  for (const JsonValue& branch : (*branches)->values) {
    const absl::StatusOr<Shared> other = OfTerm({.schema = &branch});
    if (!other.ok()) return other.status();
    const absl::Status status = Narrow(schema, "allOf", **other, allowed);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SchemaEvaluator::ApplyAnyOf(const JsonValue& schema, AllowedValues* allowed) {
  const absl::StatusOr<const JsonValue*> branches = FindSchemaList(schema, "anyOf");
  if (!branches.ok() || *branches == nullptr) return branches.status();
  absl::StatusOr<AllowedValues> any = AllowedValues();
  for (const JsonValue& branch : (*branches)->values) {
    const absl::StatusOr<Shared> other = OfTerm({.schema = &branch});
    if (!other.ok()) return other.status();
    if (any.ok()) any = algebra_.Or(*std::move(any), **other);
  }
  return Narrow(schema, "anyOf", any, allowed);
}

absl::StatusOr<AllowedValues> SchemaEvaluator::OneOf(const JsonValue& branches) {
  List<Shared> each;
  for (const JsonValue& branch : branches.values) {
    absl::StatusOr<Shared> allowed = OfTerm({.schema = &branch});
    if (!allowed.ok()) return allowed.status();
    each.push_back(*std::move(allowed));
  }
  absl::StatusOr<AllowedValues> one = AllowedValues();
  for (size_t i = 0; i < each.size(); ++i) {
    AllowedValues alone = *each[i];
    for (size_t j = 0; j < each.size(); ++j) {
      if (i == j) continue;
      const absl::StatusOr<bool> are_disjoint = algebra_.AreDisjoint(*each[i], *each[j]);
      if (!are_disjoint.ok()) return are_disjoint.status();
      if (*are_disjoint) continue;
      const absl::StatusOr<AllowedValues> others = algebra_.Not(*each[j]);
      absl::StatusOr<AllowedValues> rest =
          others.ok() ? algebra_.And(alone, *others) : others.status();
      if (!rest.ok()) {
        return absl::UnimplementedError(fmt::format(
            "its branches {} and {} may both hold, and the overlap cannot be taken out ({}); use "
            "anyOf, or give each branch a property with a const of its own",
            i, j, MessageOf(rest.status())));
      }
      alone = *std::move(rest);
      alone.Absorb();
    }
    one = algebra_.Or(*std::move(one), alone);
    if (!one.ok()) return one;
  }
  return one;
}

absl::Status SchemaEvaluator::ApplyOneOf(const JsonValue& schema, AllowedValues* allowed) {
  const absl::StatusOr<const JsonValue*> branches = FindSchemaList(schema, "oneOf");
  if (!branches.ok() || *branches == nullptr) return branches.status();
  absl::StatusOr<AllowedValues> one = OneOf(**branches);
  if (!one.ok() && report_.is_lenient() &&
      one.status().code() == absl::StatusCode::kUnimplemented) {
    report_.Warn(schema, fmt::format("oneOf is enforced as anyOf: {}", MessageOf(one.status())));
    one = AllowedValues();
    for (const JsonValue& branch : (*branches)->values) {
      const absl::StatusOr<Shared> other = OfTerm({.schema = &branch});
      if (!other.ok()) return other.status();
      if (one.ok()) one = algebra_.Or(*std::move(one), **other);
    }
    if (one.ok()) one->is_exact = false;
  }
  return Narrow(schema, "oneOf", one, allowed);
}

absl::Status SchemaEvaluator::ApplyNot(const JsonValue& schema, AllowedValues* allowed) {
  const absl::StatusOr<const JsonValue*> excluded = FindSubSchema(schema, "not");
  if (!excluded.ok() || *excluded == nullptr) return excluded.status();
  const absl::StatusOr<Shared> other = OfTerm({.schema = *excluded});
  if (!other.ok()) return other.status();
  return Narrow(schema, "not", algebra_.Not(**other), allowed);
}

absl::Status SchemaEvaluator::ApplyIf(const JsonValue& schema, AllowedValues* allowed) {
  const absl::StatusOr<const JsonValue*> condition = FindSubSchema(schema, "if");
  const absl::StatusOr<const JsonValue*> then = FindSubSchema(schema, "then");
  const absl::StatusOr<const JsonValue*> otherwise = FindSubSchema(schema, "else");
  for (const auto* keyword : {&condition, &then, &otherwise}) {
    if (!keyword->ok()) return keyword->status();
  }
  if (*condition == nullptr || (*then == nullptr && *otherwise == nullptr)) {
    return absl::OkStatus();
  }
  const absl::StatusOr<Shared> holds = OfTerm({.schema = *condition});
  if (!holds.ok()) return holds.status();
  absl::StatusOr<AllowedValues> branches[2] = {**holds, algebra_.Not(**holds)};
  const JsonValue* consequences[2] = {*then, *otherwise};
  for (int i = 0; i < 2; ++i) {
    if (consequences[i] == nullptr || !branches[i].ok()) continue;
    const absl::StatusOr<Shared> consequence = OfTerm({.schema = consequences[i]});
    if (!consequence.ok()) return consequence.status();
    branches[i] = algebra_.And(*branches[i], **consequence);
  }
  if (!branches[0].ok()) return Narrow(schema, "if", branches[0], allowed);
  if (!branches[1].ok()) return Narrow(schema, "if", branches[1], allowed);
  return Narrow(schema, "if", algebra_.Or(*branches[0], *branches[1]), allowed);
}

absl::StatusOr<AllowedValues> SchemaEvaluator::DependentValues(const JsonValue& schema,
                                                               std::string_view keyword,
                                                               std::string_view name,
                                                               const JsonValue& dependent) {
  ObjectSchema missing;
  missing.Constrain(name, NothingSet());
  ObjectSchema present;
  present.Require(name);
  AllowedValues allowed = {
      .alternatives = {{.type = JsonType::kObject, .object = std::move(present)}}};
  if (dependent.IsArray() && keyword != "dependentSchemas") {
    for (const JsonValue& other : dependent.values) {
      if (!other.IsString()) {
        return SchemaReport::Invalid(schema, fmt::format("{} has an item that is {}, expected "
                                                         "the name of a property",
                                                         keyword, NameWithArticle(other.type)));
      }
      allowed.alternatives[0].object.Require(other.text);
    }
  } else if (dependent.IsSchema() && keyword != "dependentRequired") {
    const absl::StatusOr<Shared> other = OfTerm({.schema = &dependent});
    if (!other.ok()) return other.status();
    absl::StatusOr<AllowedValues> both = algebra_.And(allowed, **other);
    if (!both.ok()) return both.status();
    allowed = *std::move(both);
  } else {
    return SchemaReport::Invalid(
        schema,
        fmt::format("a member of {} is {}, expected {}", keyword, NameWithArticle(dependent.type),
                    keyword == "dependentSchemas" ? "a schema" : "an array of names"));
  }
  return algebra_.Or(ObjectsOnly(std::move(missing)), allowed);
}

absl::Status SchemaEvaluator::ApplyDependents(const JsonValue& schema, std::string_view keyword,
                                              AllowedValues* allowed) {
  const absl::StatusOr<const JsonValue*> members = FindMembers(schema, keyword);
  if (!members.ok() || *members == nullptr) return members.status();
  for (size_t i = 0; i < (*members)->names.size(); ++i) {
    const absl::Status status = Narrow(
        schema, keyword,
        DependentValues(schema, keyword, (*members)->names[i], (*members)->values[i]), allowed);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<AllowedValues> SchemaEvaluator::NamedObjects(const JsonValue& names) {
  const absl::StatusOr<Shared> allowed = OfTerm({.schema = &names});
  if (!allowed.ok()) return allowed.status();
  if (!(*allowed)->is_exact) return absl::UnimplementedError("a part of it is not enforced");
  ByteDfa texts;
  List<std::string_view> constants;
  for (const SchemaAlternative& alternative : (*allowed)->alternatives) {
    if (alternative.type != JsonType::kString) continue;
    if (alternative.is_constant_unoffered || !alternative.string.formats.empty()) {
      return absl::UnimplementedError("names are not checked against a format");
    }
    if (alternative.constant != nullptr) {
      constants.push_back(alternative.constant->text);
      continue;
    }
    const absl::StatusOr<ByteDfa> more = StringAutomaton(alternative.string);
    if (!more.ok()) return more.status();
    absl::StatusOr<ByteDfa> united = Unite(texts, *more);
    if (!united.ok()) return united.status();
    texts = *std::move(united);
  }
  if (!constants.empty()) {
    const absl::StatusOr<ByteDfa> more = TheseStrings(constants);
    if (!more.ok()) return more.status();
    absl::StatusOr<ByteDfa> united = Unite(texts, *more);
    if (!united.ok()) return united.status();
    texts = *std::move(united);
  }
  ObjectSchema object;
  const absl::Status status =
      SplitNames(dfas_.Share(std::move(texts)), {}, NothingSet(), &dfas_, &object.others);
  if (!status.ok()) return status;
  return ObjectsOnly(std::move(object));
}

absl::Status SchemaEvaluator::ApplyPropertyNames(const JsonValue& schema, AllowedValues* allowed) {
  const absl::StatusOr<const JsonValue*> names = FindSubSchema(schema, "propertyNames");
  if (!names.ok() || *names == nullptr) return names.status();
  return Narrow(schema, "propertyNames", NamedObjects(**names), allowed);
}

}  // namespace specd::grammar
