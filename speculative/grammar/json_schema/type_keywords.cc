#include "speculative/grammar/json_schema/type_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "speculative/grammar/automata/dfa_operations.h"
#include "speculative/grammar/front_ends/regex.h"
#include "speculative/grammar/json_schema/keyword_values.h"
#include "speculative/grammar/json_schema/schema_document.h"
#include "speculative/grammar/json_schema/string_formats.h"
#include "speculative/grammar/rules/subset_construction.h"

namespace specd::grammar {
absl::StatusOr<AllowedValues> TypeKeywords::Read(const JsonValue& schema) {
  const absl::StatusOr<Types> types = ReadTypes(schema);
  if (!types.ok()) return types.status();
  AllowedValues allowed;
  for (const JsonType type : kJsonTypes) {
    if (!types->allowed[static_cast<size_t>(type)]) continue;
    SchemaAlternative alternative = {.type = type};
    absl::Status status;
    bool is_empty = false;
    switch (type) {
      case JsonType::kNull:
      case JsonType::kBoolean:
        break;
      case JsonType::kNumber:
        if (types->is_integer) alternative.number.kind = NumberSchema::Kind::kInteger;
        alternative.number.is_without_point = types->is_integer && IsDraft4(schema);
        status = ReadNumber(schema, &allowed, &alternative.number);
        is_empty = alternative.number.IsEmpty();
        break;
      case JsonType::kString:
        status = ReadString(schema, &allowed, &alternative.string);
        is_empty = alternative.string.IsEmpty();
        break;
      case JsonType::kArray:
        status = ReadArray(schema, &alternative.array);
        is_empty = alternative.array.min_items > alternative.array.max_items;
        break;
      case JsonType::kObject:
        status = ReadObject(schema, &allowed, &alternative.object);
        is_empty = alternative.object.min_properties > alternative.object.max_properties;
        break;
    }
    if (!status.ok()) return status;
    if (!is_empty) allowed.alternatives.push_back(std::move(alternative));
  }
  return allowed;
}

absl::Status TypeKeywords::AddType(const JsonValue& schema, std::string_view name, Types* types) {
  if (name == "integer") {
    // {"type": ["integer", "number"]} is every number.
    types->is_integer = !types->allowed[static_cast<size_t>(JsonType::kNumber)];
    types->allowed[static_cast<size_t>(JsonType::kNumber)] = true;
    return absl::OkStatus();
  }
  constexpr std::string_view kNames[] = {"null", "boolean", "number", "string", "array", "object"};
  for (const JsonType type : kJsonTypes) {
    if (name != kNames[static_cast<size_t>(type)]) continue;
    if (type == JsonType::kNumber) types->is_integer = false;
    types->allowed[static_cast<size_t>(type)] = true;
    return absl::OkStatus();
  }
  return SchemaReport::Invalid(
      schema, fmt::format("type is \"{}\", expected null, boolean, integer, number, string, array "
                          "or object",
                          absl::Utf8SafeCHexEscape(std::string(name.substr(0, 60)))));
}

absl::StatusOr<TypeKeywords::Types> TypeKeywords::ReadTypes(const JsonValue& schema) {
  Types types;
  const JsonValue* type = schema.Find("type");
  if (type == nullptr) {
    std::fill(std::begin(types.allowed), std::end(types.allowed), true);
    return types;
  }
  if (!type->IsString() && !type->IsArray()) {
    return WrongKeywordType(schema, "type", *type, "a string or an array of strings");
  }
  const size_t num_names = type->IsString() ? 1 : type->values.size();
  for (size_t i = 0; i < num_names; ++i) {
    const JsonValue& name = type->IsString() ? *type : type->values[i];
    if (!name.IsString()) return WrongKeywordType(schema, "an item of type", name, "a string");
    if (absl::Status status = AddType(schema, name.text, &types); !status.ok()) return status;
  }
  // OpenAPI 3.0: it adds null to the type beside it.
  const JsonValue* nullable = schema.Find("nullable");
  if (nullable != nullptr && nullable->IsBoolean(true)) {
    types.allowed[static_cast<size_t>(JsonType::kNull)] = true;
  }
  return types;
}

absl::Status TypeKeywords::ReadBound(const JsonValue& schema, bool is_upper,
                                     std::optional<NumberBound>* bound) {
  const std::string_view inclusive = is_upper ? "maximum" : "minimum";
  const std::string_view exclusive = is_upper ? "exclusiveMaximum" : "exclusiveMinimum";
  const JsonValue* value = schema.Find(inclusive);
  if (value != nullptr) {
    if (value->type != JsonType::kNumber)
      return WrongKeywordType(schema, inclusive, *value, "a number");
    *bound = NumberBound{Decimal::Parse(value->text), false};
  }
  value = schema.Find(exclusive);
  if (value == nullptr) return absl::OkStatus();
  if (value->type == JsonType::kBoolean) {  // draft 4
    if (bound->has_value()) (*bound)->is_exclusive = value->boolean;
    return absl::OkStatus();
  }
  if (value->type != JsonType::kNumber)
    return WrongKeywordType(schema, exclusive, *value, "a number");
  const Decimal limit = Decimal::Parse(value->text);
  const bool is_stricter =
      !bound->has_value() || limit == (*bound)->value || (limit < (*bound)->value) == is_upper;
  if (is_stricter) *bound = NumberBound{limit, true};
  return absl::OkStatus();
}

absl::Status TypeKeywords::ReadNumber(const JsonValue& schema, AllowedValues* allowed,
                                      NumberSchema* number) {
  if (absl::Status status = ReadBound(schema, false, &number->min); !status.ok()) return status;
  if (absl::Status status = ReadBound(schema, true, &number->max); !status.ok()) return status;
  const JsonValue* divisor = schema.Find("multipleOf");
  if (divisor == nullptr) return absl::OkStatus();
  if (divisor->type != JsonType::kNumber || Decimal::Parse(divisor->text) <= Decimal()) {
    return SchemaReport::Invalid(
        schema, fmt::format("multipleOf is {}, expected a number above 0",
                            divisor->type == JsonType::kNumber ? divisor->text
                                                               : NameWithArticle(divisor->type)));
  }
  const absl::Status status = SetMultipleOf(Decimal::Parse(divisor->text), number);
  if (status.ok()) return status;
  allowed->is_exact = false;
  return report_.Refuse(schema, "multipleOf",
                        std::string_view(status.message().data(), status.message().size()));
}

absl::StatusOr<SharedDfa> TypeKeywords::ReadPattern(const JsonValue& schema,
                                                    std::string_view keyword,
                                                    const std::string& pattern) {
  if (const auto known = patterns_.find(pattern); known != patterns_.end()) return known->second;
  GrammarRules rules;
  const absl::StatusOr<ExprId> expr = ParseRegex(pattern, {.search = true}, &rules);
  absl::StatusOr<ByteDfa> dfa = expr.ok() ? Determinize(rules, *expr) : expr.status();
  if (dfa.ok()) {
    // A pattern speaks of characters, and a string holds no others.
    absl::StatusOr<ByteDfa> all = AllStrings();
    dfa = all.ok() ? Intersect(*dfa, *all) : all.status();
  }
  if (dfa.ok()) {
    SharedDfa shared = dfas_.Share(*std::move(dfa));
    patterns_[pattern] = shared;
    return shared;
  }
  const std::string message(dfa.status().message().data(), dfa.status().message().size());
  if (dfa.status().code() == absl::StatusCode::kInvalidArgument) {
    return SchemaReport::Invalid(schema, fmt::format("{}: {}", keyword, message));
  }
  absl::Status status = report_.Refuse(schema, keyword, message);
  if (!status.ok()) return status;
  return SharedDfa();
}

absl::Status TypeKeywords::ReadString(const JsonValue& schema, AllowedValues* allowed,
                                      StringSchema* string) {
  absl::Status status = ReadSchemaCount(schema, "minLength", &string->min_length);
  if (status.ok()) status = ReadSchemaCount(schema, "maxLength", &string->max_length);
  if (!status.ok()) return status;
  if (const JsonValue* pattern = schema.Find("pattern"); pattern != nullptr) {
    if (!pattern->IsString()) return WrongKeywordType(schema, "pattern", *pattern, "a string");
    absl::StatusOr<SharedDfa> values = ReadPattern(schema, "pattern", pattern->text);
    if (!values.ok()) return values.status();
    string->values = *std::move(values);
    allowed->is_exact = allowed->is_exact && string->values != nullptr;
  }
  return ReadFormat(schema, string);
}

absl::Status TypeKeywords::ReadFormat(const JsonValue& schema, StringSchema* string) {
  const JsonValue* format = schema.Find("format");
  if (format == nullptr) return absl::OkStatus();
  if (!format->IsString()) return WrongKeywordType(schema, "format", *format, "a string");
  if (!IsStandardFormat(format->text)) {
    // The standard lets an unknown format constrain nothing, so the values stay exact. One warning
    // for each name is enough.
    const std::string name = absl::Utf8SafeCHexEscape(format->text.substr(0, 60));
    if (remarks_.insert(name).second) {
      report_.Warn(
          schema, fmt::format("format \"{}\" is taken as a remark: the standard names none", name));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<SharedDfa> automaton = FormatAutomaton(format->text);
  if (!automaton.ok()) return automaton.status();
  string->formats.push_back(*std::move(automaton));
  return absl::OkStatus();
}

absl::Status TypeKeywords::ReadArray(const JsonValue& schema, ArraySchema* array) {
  absl::Status status = ReadSchemaCount(schema, "minItems", &array->min_items);
  if (status.ok()) status = ReadSchemaCount(schema, "maxItems", &array->max_items);
  if (!status.ok()) return status;
  const JsonValue* items = schema.Find("items");
  absl::StatusOr<const JsonValue*> prefix = FindSchemaList(schema, "prefixItems");
  if (!prefix.ok()) return prefix.status();
  absl::StatusOr<const JsonValue*> rest = nullptr;
  if (items != nullptr && items->IsArray() && *prefix == nullptr) {  // draft 4 to 2019-09
    prefix = FindSchemaList(schema, "items");
    rest = FindSubSchema(schema, "additionalItems");
  } else {
    rest = FindSubSchema(schema, "items");
  }
  if (!prefix.ok() || !rest.ok()) return prefix.ok() ? rest.status() : prefix.status();
  if (*prefix != nullptr) {
    for (const JsonValue& item : (*prefix)->values) array->prefix.push_back(SetOf({&item}));
  }
  if (*rest != nullptr) array->rest = SetOf({*rest});
  return ReadUnofferedItems(schema, array);
}

absl::Status TypeKeywords::ReadUnofferedItems(const JsonValue& schema, ArraySchema* array) {
  if (const JsonValue* unique = schema.Find("uniqueItems"); unique != nullptr) {
    if (unique->type != JsonType::kBoolean) {
      return WrongKeywordType(schema, "uniqueItems", *unique, "true or false");
    }
    if (unique->boolean) array->unoffered.push_back({&schema, "uniqueItems"});
  }
  const absl::StatusOr<const JsonValue*> contains = FindSubSchema(schema, "contains");
  if (!contains.ok()) return contains.status();
  if (*contains != nullptr) {
    uint32_t min = 1;
    uint32_t max = kUnbounded;
    absl::Status status = ReadSchemaCount(schema, "minContains", &min);
    if (status.ok()) status = ReadSchemaCount(schema, "maxContains", &max);
    if (!status.ok()) return status;
    if (min > 0 || max != kUnbounded) {
      array->contained.push_back({.schemas = SetOf({*contains}), .min = min, .max = max});
    }
  }
  const absl::StatusOr<const JsonValue*> unevaluated = FindSubSchema(schema, "unevaluatedItems");
  if (!unevaluated.ok()) return unevaluated.status();
  if (*unevaluated == nullptr || SetOf({*unevaluated}).empty()) return absl::OkStatus();
  const JsonValue* items = schema.Find("items");
  if (items != nullptr && !items->IsArray()) return absl::OkStatus();  // all are evaluated
  if (items == nullptr &&
      !HasAnyKeyword(schema, {"$ref", "allOf", "anyOf", "oneOf", "if", "contains",
                              "dependentSchemas", "$dynamicRef", "$recursiveRef"})) {
    array->rest = SetOf({*unevaluated});  // nothing else evaluates an item
    return absl::OkStatus();
  }
  array->unoffered.push_back({&schema, "unevaluatedItems"});
  return absl::OkStatus();
}

absl::Status TypeKeywords::ReadObject(const JsonValue& schema, AllowedValues* allowed,
                                      ObjectSchema* object) {
  absl::Status status = ReadSchemaCount(schema, "minProperties", &object->min_properties);
  if (status.ok()) status = ReadSchemaCount(schema, "maxProperties", &object->max_properties);
  if (!status.ok()) return status;
  const absl::StatusOr<const JsonValue*> properties = FindMembers(schema, "properties");
  if (!properties.ok()) return properties.status();
  const absl::StatusOr<const JsonValue*> additional = FindSubSchema(schema, "additionalProperties");
  if (!additional.ok()) return additional.status();
  const SchemaSet others = *additional == nullptr ? SchemaSet() : SetOf({*additional});
  status = ReadPatternProperties(schema, others, allowed, object);
  if (!status.ok()) return status;
  if (*properties != nullptr) {
    for (size_t i = 0; i < (*properties)->names.size(); ++i) {
      const std::string& name = (*properties)->names[i];
      const JsonValue& value = (*properties)->values[i];
      if (!value.IsSchema()) return WrongKeywordType(value, "a property", value, "a schema");
      // Patterns apply to declared names too; additionalProperties does not.
      SchemaSet schemas = SetOf({&value});
      const absl::StatusOr<const JsonValue*> patterns = FindMembers(schema, "patternProperties");
      for (size_t j = 0; *patterns != nullptr && j < (*patterns)->names.size(); ++j) {
        const auto pattern = patterns_.find((*patterns)->names[j]);
        if (pattern == patterns_.end() || !pattern->second->Accepts(name)) continue;
        schemas = UniteSets(schemas, SetOf({&(*patterns)->values[j]}));
      }
      object->properties.push_back(
          {.name = name, .schemas = std::move(schemas), .has_place = true});
    }
  }
  status = ReadRequired(schema, object);
  if (!status.ok()) return status;
  return ReadUnevaluated(schema, object);
}

absl::Status TypeKeywords::ReadPatternProperties(const JsonValue& schema,
                                                 const SchemaSet& additional,
                                                 AllowedValues* allowed, ObjectSchema* object) {
  const absl::StatusOr<const JsonValue*> patterns = FindMembers(schema, "patternProperties");
  if (!patterns.ok()) return patterns.status();
  SharedDfa matched;  // names that any pattern matches
  bool is_matched_known = true;
  for (size_t i = 0; *patterns != nullptr && i < (*patterns)->names.size(); ++i) {
    const JsonValue& value = (*patterns)->values[i];
    if (!value.IsSchema()) return WrongKeywordType(value, "a pattern property", value, "a schema");
    absl::StatusOr<SharedDfa> names =
        ReadPattern(schema, "patternProperties", (*patterns)->names[i]);
    if (!names.ok()) return names.status();
    if (*names == nullptr) {
      allowed->is_exact = false;
      is_matched_known = false;
      continue;
    }
    absl::Status status = SplitNames(*names, SetOf({&value}), {}, &dfas_, &object->others);
    if (!status.ok()) {
      allowed->is_exact = false;
      is_matched_known = false;
      status = report_.Refuse(schema, "patternProperties", "its patterns need too many states");
      if (!status.ok()) return status;
      break;
    }
    absl::StatusOr<ByteDfa> united = matched == nullptr ? **names : Unite(*matched, **names);
    if (!united.ok()) return united.status();
    matched = dfas_.Share(*std::move(united));
  }
  if (additional.empty()) return absl::OkStatus();
  if (!is_matched_known) {
    // Applied to names that a dropped pattern matches, it would allow less than the schema does.
    return report_.Refuse(schema, "additionalProperties",
                          "it depends on a pattern of patternProperties that is not enforced");
  }
  if (matched == nullptr) {
    object->others = {{nullptr, additional}};
    return absl::OkStatus();
  }
  return SplitNames(matched, {}, additional, &dfas_, &object->others);
}

absl::Status TypeKeywords::ReadRequired(const JsonValue& schema, ObjectSchema* object) {
  const JsonValue* required = schema.Find("required");
  if (required == nullptr) return absl::OkStatus();
  if (!required->IsArray())
    return WrongKeywordType(schema, "required", *required, "an array of names");
  for (const JsonValue& name : required->values) {
    if (!name.IsString()) return WrongKeywordType(schema, "an item of required", name, "a string");
    object->Require(name.text);
    if (Budget::IsSpent()) return Budget::Refusal();
  }
  return absl::OkStatus();
}

absl::Status TypeKeywords::ReadUnevaluated(const JsonValue& schema, ObjectSchema* object) {
  const absl::StatusOr<const JsonValue*> unevaluated =
      FindSubSchema(schema, "unevaluatedProperties");
  if (!unevaluated.ok()) return unevaluated.status();
  if (*unevaluated == nullptr || SetOf({*unevaluated}).empty()) return absl::OkStatus();
  if (schema.Find("additionalProperties") != nullptr) return absl::OkStatus();  // all are evaluated
  if (HasAnyKeyword(schema,
                    {"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies",
                     "$dynamicRef", "$recursiveRef", "patternProperties"})) {
    object->unoffered.push_back({&schema, "unevaluatedProperties"});
    return absl::OkStatus();
  }
  // Nothing else evaluates a name. A name that is only required is not evaluated.
  const SchemaSet others = SetOf({*unevaluated});
  const absl::StatusOr<const JsonValue*> properties = FindMembers(schema, "properties");
  for (PropertySchema& property : object->properties) {
    if (*properties == nullptr || (*properties)->Find(property.name) == nullptr) {
      property.schemas = UniteSets(property.schemas, others);
    }
  }
  object->others = {{nullptr, others}};
  return absl::OkStatus();
}

absl::Status RefuseUnoffered(const List<UnofferedKeyword>& unoffered, SchemaReport* report) {
  for (const UnofferedKeyword& keyword : unoffered) {
    const absl::Status status = report->Refuse(*keyword.schema, keyword.keyword,
                                               "it depends on what other keywords have seen");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace specd::grammar
