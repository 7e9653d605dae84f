#include "speculative/grammar/xgrammar_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "speculative/grammar/xgrammar_json.h"
#include "speculative/grammar/xgrammar_one_of.h"
#include "speculative/grammar/xgrammar_text.h"

namespace specd::grammar {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// The library looks for these in this order, and drops every other keyword beside the first.
constexpr std::string_view kHeads[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

// Dropped everywhere.
constexpr std::string_view kIgnored[] = {
    "not",         "if",       "dependentRequired",     "dependentSchemas", "dependencies",
    "uniqueItems", "contains", "unevaluatedProperties", "$dynamicRef",      "$recursiveRef"};

// Enforced beside `type`.
constexpr std::string_view kTyped[] = {
    "type",          "properties",      "required",          "additionalProperties",
    "minProperties", "maxProperties",   "patternProperties", "propertyNames",
    "items",         "prefixItems",     "unevaluatedItems",  "minItems",
    "maxItems",      "minLength",       "maxLength",         "pattern",
    "format",        "minimum",         "maximum",           "exclusiveMinimum",
    "multipleOf",    "exclusiveMaximum"};

constexpr std::string_view kFormats[] = {"date",          "time",
                                         "date-time",     "duration",
                                         "email",         "hostname",
                                         "ipv4",          "ipv6",
                                         "uuid",          "uri",
                                         "uri-reference", "uri-template",
                                         "json-pointer",  "relative-json-pointer"};
// Their values have rules beyond the form, such as the days of a month.
constexpr std::string_view kFormatsByForm[] = {"date", "time", "date-time", "hostname"};

// The library enforces multipleOf up to this divisor, and in a range of at most this many integers.
constexpr double kMultipleOfMax = 1024;
constexpr double kMultipleRangeMax = 10000;

// Every pair of branches of oneOf is compared.
constexpr size_t kBranchesMax = 256;

template <size_t N>
bool Contains(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool Has(const object& schema, std::string_view keyword) {
  return schema.at_key(keyword).error() == simdjson::SUCCESS;
}

bool IsBool(const element& value, bool wanted) {
  bool is_true = false;
  return !value.get(is_true) && is_true == wanted;
}

bool IsFalse(const object& schema, std::string_view keyword) {
  element value;
  return !schema.at_key(keyword).get(value) && IsBool(value, false);
}

// The library compares a pattern with the text between the quotes as it is written. Such a pattern
// asks for characters that JSON writes with a backslash.
bool AsksForEscaped(std::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '"' || static_cast<uint8_t>(pattern[i]) < 0x20) return true;
    if (pattern[i] != '\\' || i + 1 == pattern.size()) continue;
    ++i;
    if (std::string_view("\\nrtfv").find(pattern[i]) != std::string_view::npos) return true;
  }
  return false;
}

// A name that JSON may write in one way only, apart from \u escapes.
bool IsPlainName(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\' && c != '/';
  });
}

class Scan {
 public:
  explicit Scan(std::vector<std::string>& warnings) : warnings_(warnings) {}

  // The depth is bounded by that of the parser (kJsonDepthMax).
  absl::Status Visit(const element& value, const std::string& pointer) {
    object schema;
    if (value.get(schema)) return absl::OkStatus();
    for (const std::string_view keyword : {"$defs", "definitions"}) {
      VisitMap(schema, keyword, pointer);
    }
    const auto head = std::find_if(std::begin(kHeads), std::end(kHeads),
                                   [&](std::string_view name) { return Has(schema, name); });
    if (head != std::end(kHeads)) {
      VisitHead(schema, *head, pointer);
    } else {
      VisitTyped(schema, pointer);
    }
    return status_;
  }

 private:
  void Warn(const std::string& pointer, std::string_view keyword, std::string_view text) {
    warnings_.push_back(fmt::format("{}: {}", JoinPointer(pointer, keyword), text));
  }
  // Warns if the keyword is there.
  void WarnIfHas(const object& schema, std::string_view keyword, const std::string& pointer,
                 std::string_view text) {
    if (Has(schema, keyword)) Warn(pointer, keyword, text);
  }

  void VisitChild(const object& schema, std::string_view keyword, const std::string& pointer) {
    element child;
    if (!schema.at_key(keyword).get(child))
      Visit(child, JoinPointer(pointer, keyword)).IgnoreError();
  }
  void VisitMap(const object& schema, std::string_view keyword, const std::string& pointer) {
    object children;
    if (schema.at_key(keyword).get(children)) return;
    const std::string base = JoinPointer(pointer, keyword);
    for (const auto& [name, child] : children) Visit(child, JoinPointer(base, name)).IgnoreError();
  }
  void VisitList(const object& schema, std::string_view keyword, const std::string& pointer) {
    array children;
    if (schema.at_key(keyword).get(children)) return;
    const std::string base = JoinPointer(pointer, keyword);
    size_t index = 0;
    for (const element child : children) {
      Visit(child, fmt::format("{}/{}", base, index++)).IgnoreError();
    }
  }

  void VisitHead(const object& schema, std::string_view head, const std::string& pointer) {
    const std::string beside = fmt::format("is ignored beside {}", head);
    for (const auto& [keyword, value] : schema) {
      const bool is_assertion =
          Contains(kHeads, keyword) || Contains(kIgnored, keyword) || Contains(kTyped, keyword);
      if (!is_assertion || keyword == head) continue;
      if (keyword == "type" && IsTypeImplied(schema, head)) continue;
      Warn(pointer, keyword, beside);
    }
    if (head == "$ref") CheckReference(schema, pointer);
    if (head == "anyOf" || head == "oneOf") VisitList(schema, head, pointer);
    if (head == "oneOf") CheckOneOf(schema, pointer);
    array branches;
    if (head != "allOf" || schema.at_key(head).get(branches)) return;
    if (branches.size() > 1) {
      Warn(pointer, head, "has more than one branch: every value passes");
    } else {
      VisitList(schema, head, pointer);
    }
  }

  // True if each value of const or enum has one of the types beside it.
  static bool IsTypeImplied(const object& schema, std::string_view head) {
    const unsigned types = TypesOfKeyword(schema).bits;
    const auto fits = [&](const element& value) {
      return (TypesOfValue(value).bits & ~types) == 0;
    };
    element value;
    if (schema.at_key(head).get(value)) return false;
    if (head == "const") return fits(value);
    array values;
    if (head != "enum" || value.get(values)) return false;
    return std::all_of(values.begin(), values.end(), fits);
  }

  void CheckReference(const object& schema, const std::string& pointer) {
    std::string_view target;
    if (schema.at_key("$ref").get(target)) return;
    if (target != "#" && !target.starts_with("#/")) {
      Warn(pointer, "$ref", "does not begin with #/: every value passes");
    }
  }

  void CheckOneOf(const object& schema, const std::string& pointer) {
    array branches;
    if (schema.at_key("oneOf").get(branches)) return;
    const std::vector<element> list(branches.begin(), branches.end());
    if (list.size() > kBranchesMax) {
      Warn(pointer, "oneOf", "may be taken for anyOf: it has too many branches to compare");
      return;
    }
    for (size_t i = 0; i < list.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (AreDisjoint(list[i], list[j])) continue;
        Warn(pointer, "oneOf",
             fmt::format("is taken for anyOf, because branches {} and {} may overlap", j, i));
        return;
      }
    }
  }

  void VisitTyped(const object& schema, const std::string& pointer) {
    for (const std::string_view keyword : kIgnored) {
      element value;
      if (schema.at_key(keyword).get(value)) continue;
      const bool asks_nothing = (keyword == "uniqueItems" && IsBool(value, false)) ||
                                (keyword == "unevaluatedProperties" && IsBool(value, true));
      if (!asks_nothing) Warn(pointer, keyword, "is ignored");
    }
    JsonTypes types = TypesOfKeyword(schema);
    if (!Has(schema, "type")) {
      const bool is_object = Has(schema, "properties") || Has(schema, "additionalProperties");
      const bool is_array =
          Has(schema, "items") || Has(schema, "prefixItems") || Has(schema, "unevaluatedItems");
      if (!is_object && !is_array) {
        for (const auto& [keyword, value] : schema) {
          if (Contains(kTyped, keyword)) Warn(pointer, keyword, "is ignored without type");
        }
        return;
      }
      types.bits = is_object ? JsonTypes::kObject : JsonTypes::kArray;
    }
    if (types.Has(JsonTypes::kObject)) VisitObject(schema, pointer);
    if (types.Has(JsonTypes::kArray)) {
      VisitChild(schema, "items", pointer);
      VisitList(schema, "prefixItems", pointer);
      VisitChild(schema, "unevaluatedItems", pointer);
    }
    if (types.Has(JsonTypes::kString)) CheckString(schema, pointer);
    if (types.Has(JsonTypes::kFraction)) {
      WarnIfHas(schema, "multipleOf", pointer, "is ignored for numbers");
    } else if (types.Has(JsonTypes::kInteger)) {
      CheckMultipleOf(schema, pointer);
    }
  }

  void VisitObject(const object& schema, const std::string& pointer) {
    VisitMap(schema, "properties", pointer);
    VisitMap(schema, "patternProperties", pointer);
    VisitChild(schema, "additionalProperties", pointer);
    CheckPropertyNames(schema, pointer);
    object properties;
    const bool has_properties = !schema.at_key("properties").get(properties);
    array required;
    if (!schema.at_key("required").get(required)) {
      for (const element item : required) {
        std::string_view name;
        if (item.get(name)) continue;
        if (has_properties && properties.at_key(name).error() == simdjson::SUCCESS) continue;
        Warn(pointer, "required",
             fmt::format("{} is not required, because it is not in properties", name));
      }
    }
    object patterns;
    if (!schema.at_key("patternProperties").get(patterns)) {
      for (const auto& [pattern, child] : patterns) {
        CheckPatternText(pattern, JoinPointer(pointer, "patternProperties"), pattern);
      }
      if (has_properties) {
        Warn(pointer, "patternProperties", "may be ignored beside properties");
      }
    }
    if (!has_properties || IsFalse(schema, "additionalProperties")) return;
    for (const auto& [name, child] : properties) {
      if (IsPlainName(name)) continue;
      Warn(JoinPointer(pointer, "properties"), name,
           "is ignored where the name comes as an additional property");
    }
    if (properties.size() == 0 || warned_of_escapes_) return;
    warned_of_escapes_ = true;
    Warn(pointer, "properties",
         "is ignored for names written with \\u escapes, here and in every object that allows "
         "additional properties");
  }

  void CheckPropertyNames(const object& schema, const std::string& pointer) {
    object names;
    if (schema.at_key("propertyNames").get(names)) return;
    const std::string base = JoinPointer(pointer, "propertyNames");
    // The names are strings without the keyword saying so.
    CheckString(names, base);
    for (const std::string_view keyword : kIgnored) {
      WarnIfHas(names, keyword, base, "is ignored");
    }
    for (const std::string_view keyword : {"$ref", "anyOf", "oneOf", "allOf"}) {
      WarnIfHas(names, keyword, base, "may be ignored");
    }
    WarnIfHas(schema, "properties", pointer, "is ignored beside propertyNames");
  }

  void CheckString(const object& schema, const std::string& pointer) {
    std::string_view format;
    std::string_view pattern;
    const bool has_format = !schema.at_key("format").get(format);
    const bool has_pattern = !schema.at_key("pattern").get(pattern);
    const bool knows_format = has_format && Contains(kFormats, format);
    if (has_format && !knows_format) Warn(pointer, "format", fmt::format("{} is ignored", format));
    if (knows_format && Contains(kFormatsByForm, format)) {
      Warn(pointer, "format", fmt::format("{} is checked by its form alone", format));
    }
    if (knows_format) WarnIfHas(schema, "pattern", pointer, "is ignored beside format");
    if (knows_format || has_pattern) {
      const std::string beside =
          fmt::format("is ignored beside {}", knows_format ? "format" : "pattern");
      WarnIfHas(schema, "minLength", pointer, beside);
      WarnIfHas(schema, "maxLength", pointer, beside);
    }
    if (has_pattern && !knows_format) CheckPatternText(pattern, pointer, "pattern");
  }

  void CheckPatternText(std::string_view pattern, const std::string& pointer,
                        std::string_view keyword) {
    const absl::Status status = CheckPattern(pattern);
    if (status.code() == absl::StatusCode::kResourceExhausted) {
      status_.Update(status);
    } else if (!status.ok()) {
      Warn(pointer, keyword, std::string_view(status.message().data(), status.message().size()));
    }
    if (AsksForEscaped(pattern)) {
      Warn(pointer, keyword, "is compared with the text before its escapes are read");
    }
  }

  void CheckMultipleOf(const object& schema, const std::string& pointer) {
    double divisor = 0;
    if (schema.at_key("multipleOf").get(divisor)) return;
    if (divisor < 1 || divisor > kMultipleOfMax || divisor != std::floor(divisor)) {
      Warn(pointer, "multipleOf",
           fmt::format("is ignored unless it is an integer from 1 to {}", kMultipleOfMax));
      return;
    }
    const auto bound = [&](std::initializer_list<std::string_view> keywords, double& value) {
      return std::any_of(keywords.begin(), keywords.end(), [&](std::string_view keyword) {
        return !schema.at_key(keyword).get(value);
      });
    };
    double low = 0;
    double high = 0;
    const bool has_low = bound({"minimum", "exclusiveMinimum"}, low);
    const bool has_high = bound({"maximum", "exclusiveMaximum"}, high);
    if (has_low == has_high && high - low < kMultipleRangeMax) return;
    Warn(pointer, "multipleOf",
         fmt::format("is ignored beside bounds, unless both are there and at most {} integers lie "
                     "between them",
                     kMultipleRangeMax));
  }

  std::vector<std::string>& warnings_;
  absl::Status status_;
  bool warned_of_escapes_ = false;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> FindUnenforced(std::string_view schema,
                                                        const std::string& pointer) {
  JsonDocument document;
  if (absl::Status status = document.Parse(schema, "json schema"); !status.ok()) return status;
  std::vector<std::string> warnings;
  if (absl::Status status = Scan(warnings).Visit(document.root(), pointer); !status.ok()) {
    return status;
  }
  return warnings;
}

}  // namespace specd::grammar
