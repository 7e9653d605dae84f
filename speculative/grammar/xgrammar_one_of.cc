#include "speculative/grammar/xgrammar_one_of.h"

#include <string>
#include <string_view>
#include <vector>

namespace specd::grammar {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

unsigned TypeNamed(std::string_view name) {
  if (name == "null") return JsonTypes::kNull;
  if (name == "boolean") return JsonTypes::kBoolean;
  if (name == "integer") return JsonTypes::kInteger;
  if (name == "number") return JsonTypes::kInteger | JsonTypes::kFraction;
  if (name == "string") return JsonTypes::kString;
  if (name == "array") return JsonTypes::kArray;
  if (name == "object") return JsonTypes::kObject;
  return JsonTypes::kAll;
}

// The values that a schema's const or enum lists; none if it has neither.
std::vector<element> ListedValues(const object& schema) {
  std::vector<element> values;
  element value;
  array list;
  if (!schema["const"].get(value)) {
    values.push_back(value);
  } else if (!schema["enum"].get(list)) {
    for (const element item : list) values.push_back(item);
  }
  return values;
}

bool HaveNoCommonValue(const std::vector<element>& a, const std::vector<element>& b) {
  for (const element& left : a) {
    for (const element& right : b) {
      // 1 and 1.0 are one value with two texts, so only texts of strings decide.
      if (!left.is_string() || !right.is_string()) return false;
      if (std::string_view(left) == std::string_view(right)) return false;
    }
  }
  return !a.empty() && !b.empty();
}

JsonTypes TypesOf(const object& schema) {
  const std::vector<element> values = ListedValues(schema);
  if (values.empty()) return TypesOfKeyword(schema);
  JsonTypes types = {.bits = 0};
  for (const element& value : values) types.bits |= TypesOfValue(value).bits;
  return types;
}

bool Requires(const object& schema, std::string_view name) {
  array required;
  if (schema["required"].get(required)) return false;
  for (const element item : required) {
    std::string_view text;
    if (!item.get(text) && text == name) return true;
  }
  return false;
}

bool PropertyTellsApart(const object& a, const object& b) {
  object a_properties;
  object b_properties;
  if (a["properties"].get(a_properties) || b["properties"].get(b_properties)) return false;
  for (const auto& [name, value] : a_properties) {
    object a_schema;
    object b_schema;
    if (value.get(a_schema) || b_properties.at_key(name).get(b_schema)) continue;
    if (Requires(a, name) && Requires(b, name) &&
        HaveNoCommonValue(ListedValues(a_schema), ListedValues(b_schema))) {
      return true;
    }
  }
  return false;
}

}  // namespace

JsonTypes TypesOfValue(const element& value) {
  switch (value.type()) {
    case element_type::NULL_VALUE:
      return {JsonTypes::kNull};
    case element_type::BOOL:
      return {JsonTypes::kBoolean};
    case element_type::INT64:
    case element_type::UINT64:
      return {JsonTypes::kInteger};
    case element_type::DOUBLE:
      return {JsonTypes::kInteger | JsonTypes::kFraction};  // 1.0 is an integer
    case element_type::STRING:
      return {JsonTypes::kString};
    case element_type::ARRAY:
      return {JsonTypes::kArray};
    case element_type::OBJECT:
      return {JsonTypes::kObject};
  }
  return {};
}

JsonTypes TypesOfKeyword(const object& schema) {
  element type;
  if (schema["type"].get(type)) return {};
  std::string_view name;
  if (!type.get(name)) return {TypeNamed(name)};
  array names;
  if (type.get(names)) return {};
  JsonTypes types = {.bits = 0};
  for (const element item : names) {
    if (!item.get(name)) types.bits |= TypeNamed(name);
  }
  return types;
}

bool AreDisjoint(const element& a, const element& b) {
  object a_schema;
  object b_schema;
  if (a.get(a_schema) || b.get(b_schema)) return false;
  const unsigned common = TypesOf(a_schema).bits & TypesOf(b_schema).bits;
  if (common == 0) return true;
  if (HaveNoCommonValue(ListedValues(a_schema), ListedValues(b_schema))) return true;
  return common == JsonTypes::kObject && PropertyTellsApart(a_schema, b_schema);
}

}  // namespace specd::grammar
