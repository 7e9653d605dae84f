#include "speculative/grammar/base/json_value.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "kernels/core/check.h"
#include "speculative/grammar/base/counted.h"
#include "speculative/grammar/base/decimal.h"
#include "speculative/grammar/base/hash_tables.h"
#include "speculative/grammar/base/json_memory.h"

namespace specd::grammar {
namespace {

namespace ondemand = simdjson::ondemand;
using simdjson::error_code;

constexpr std::string_view kBlank = " \t\r\n";

class Parser {
 public:
  explicit Parser(std::string_view json) : padded_(json) {}

  absl::StatusOr<std::unique_ptr<const JsonValue>> Parse();

 private:
  absl::Status ReadNumber(std::string_view text, JsonValue* value);
  template <typename Source>
  absl::Status ReadScalar(ondemand::json_type type, Source& source, JsonValue* value);
  absl::Status ReadValue(ondemand::value source, uint32_t depth, JsonValue* value);
  absl::Status ReadArray(ondemand::array array, uint32_t depth, JsonValue* value);
  absl::Status ReadObject(ondemand::object object, uint32_t depth, JsonValue* value);
  absl::Status Invalid(std::string_view why);
  absl::Status Invalid(error_code error) { return Invalid(simdjson::error_message(error)); }

  const simdjson::padded_string padded_;
  ondemand::parser parser_;
  ondemand::document document_;
};

absl::Status Parser::Invalid(std::string_view why) {
  const char* at = nullptr;
  if (document_.current_location().get(at) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(
        fmt::format("the text is not JSON: {}; it ends after {} bytes", why, padded_.size()));
  }
  return absl::InvalidArgumentError(
      fmt::format("the text is not JSON: {}, at or before byte {}", why, at - padded_.data()));
}

absl::StatusOr<std::unique_ptr<const JsonValue>> Parser::Parse() {
  // A padded string without memory for its text has a size all the same.
  if (padded_.data() == nullptr) return CheckJsonMemory(simdjson::MEMALLOC);
  // One level more than is allowed, so that our own message names the limit.
  if (const error_code error = parser_.allocate(padded_.size(), kJsonDepthMax + 3)) {
    if (absl::Status status = CheckJsonMemory(error); !status.ok()) return status;
    return absl::ResourceExhaustedError(simdjson::error_message(error));
  }
  if (const error_code error = parser_.iterate(padded_).get(document_)) {
    if (absl::Status status = CheckJsonMemory(error); !status.ok()) return status;
    return absl::InvalidArgumentError(
        fmt::format("the text is not JSON: {}", simdjson::error_message(error)));
  }
  auto root = std::make_unique<JsonValue>();
  ondemand::json_type type;
  if (const error_code error = document_.type().get(type)) return Invalid(error);
  absl::Status status;
  if (type == ondemand::json_type::number) {
    // The token of a root number is looked at, not read, so simdjson cannot tell what follows.
    const std::string_view json(padded_.data(), padded_.size());
    const size_t first = json.find_first_not_of(kBlank);
    status = ReadNumber(json.substr(first, json.find_last_not_of(kBlank) + 1 - first), root.get());
    if (!status.ok()) return status;
    return std::unique_ptr<const JsonValue>(std::move(root));
  }
  if (type == ondemand::json_type::array || type == ondemand::json_type::object) {
    ondemand::value value;
    if (const error_code error = document_.get_value().get(value)) return Invalid(error);
    status = ReadValue(value, 1, root.get());
  } else {
    status = ReadScalar(type, document_, root.get());
  }
  if (!status.ok()) return status;
  const char* rest = nullptr;
  if (document_.current_location().get(rest) == simdjson::SUCCESS) {
    return Invalid("more text after the value");
  }

  uint32_t index = 0;
  List<JsonValue*> open = {root.get()};
  while (!open.empty()) {
    JsonValue* value = open.back();
    open.pop_back();
    value->index = index++;
    for (auto child = value->values.rbegin(); child != value->values.rend(); ++child) {
      child->parent = value;
      open.push_back(&*child);
    }
  }
  return std::unique_ptr<const JsonValue>(std::move(root));
}

absl::Status Parser::ReadNumber(std::string_view text, JsonValue* value) {
  value->type = JsonType::kNumber;
  value->text = std::string(text);
  // Decimal counts powers of ten in 64 bits.
  constexpr size_t kExponentSizeMax = 9;
  const size_t exponent = text.find_first_of("eE");
  if (!IsJsonNumber(text) ||
      (exponent != std::string_view::npos && text.size() - exponent - 1 > kExponentSizeMax)) {
    return Invalid(fmt::format("\"{}\" is no number, or its exponent is too long",
                               absl::CHexEscape(std::string(text.substr(0, 40)))));
  }
  return absl::OkStatus();
}

template <typename Source>
absl::Status Parser::ReadScalar(ondemand::json_type type, Source& source, JsonValue* value) {
  switch (type) {
    case ondemand::json_type::number: {
      std::string_view text;
      // A value has a token, a document may fail to.
      if constexpr (std::is_same_v<Source, ondemand::value>) {
        text = source.raw_json_token();
      } else if (const error_code error = source.raw_json_token().get(text)) {
        return Invalid(error);
      }
      return ReadNumber(text.substr(0, text.find_last_not_of(kBlank) + 1), value);
    }
    case ondemand::json_type::string: {
      value->type = JsonType::kString;
      std::string_view text;
      if (const error_code error = source.get_string().get(text)) return Invalid(error);
      // simdjson writes a lone low surrogate as if it were a character.
      if (!simdjson::validate_utf8(text.data(), text.size())) return Invalid("a lone surrogate");
      value->text = std::string(text);
      return absl::OkStatus();
    }
    case ondemand::json_type::boolean:
      value->type = JsonType::kBoolean;
      if (const error_code error = source.get_bool().get(value->boolean)) return Invalid(error);
      return absl::OkStatus();
    default: {
      value->type = JsonType::kNull;
      bool is_null = false;
      if (const error_code error = source.is_null().get(is_null)) return Invalid(error);
      return is_null ? absl::OkStatus() : Invalid("not a value");
    }
  }
}

absl::Status Parser::ReadValue(ondemand::value source, uint32_t depth, JsonValue* value) {
  if (depth > kJsonDepthMax) {
    return absl::ResourceExhaustedError(fmt::format(
        "the JSON text nests deeper than {} levels; flatten it, with $ref and $defs if it is a "
        "schema",
        kJsonDepthMax));
  }
  ondemand::json_type type;
  if (const error_code error = source.type().get(type)) return Invalid(error);
  if (type == ondemand::json_type::array) {
    ondemand::array array;
    if (const error_code error = source.get_array().get(array)) return Invalid(error);
    return ReadArray(array, depth, value);
  }
  if (type == ondemand::json_type::object) {
    ondemand::object object;
    if (const error_code error = source.get_object().get(object)) return Invalid(error);
    return ReadObject(object, depth, value);
  }
  return ReadScalar(type, source, value);
}

absl::Status Parser::ReadArray(ondemand::array array, uint32_t depth, JsonValue* value) {
  value->type = JsonType::kArray;
  for (auto item : array) {
    ondemand::value source;
    if (const error_code error = item.get(source)) return Invalid(error);
    absl::Status status = ReadValue(source, depth + 1, &value->values.emplace_back());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadObject(ondemand::object object, uint32_t depth, JsonValue* value) {
  value->type = JsonType::kObject;
  HashSet<std::string> seen;
  for (auto field : object) {
    std::string_view name;
    if (const error_code error = field.unescaped_key().get(name)) return Invalid(error);
    if (!simdjson::validate_utf8(name.data(), name.size())) return Invalid("a lone surrogate");
    if (!seen.emplace(name).second) {
      return Invalid(fmt::format("two members of one object are named \"{}\"; remove one",
                                 absl::Utf8SafeCHexEscape(std::string(name.substr(0, 60)))));
    }
    value->names.emplace_back(name);
    ondemand::value source;
    if (const error_code error = field.value().get(source)) return Invalid(error);
    absl::Status status = ReadValue(source, depth + 1, &value->values.emplace_back());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view NameWithArticle(JsonType type) {
  switch (type) {
    case JsonType::kNull:
      return "null";
    case JsonType::kBoolean:
      return "a boolean";
    case JsonType::kNumber:
      return "a number";
    case JsonType::kString:
      return "a string";
    case JsonType::kArray:
      return "an array";
    case JsonType::kObject:
      return "an object";
  }
  SPECD_CHECK(false);
  return "";
}

const JsonValue* JsonValue::Find(std::string_view name) const {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return &values[i];
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<const JsonValue>> ParseJson(std::string_view json) {
  if (json.size() > kJsonSizeBytesMax) {
    return absl::ResourceExhaustedError(
        fmt::format("the JSON text has {} bytes, at most {} are read; make it shorter", json.size(),
                    kJsonSizeBytesMax));
  }
  if (json.find_first_not_of(kBlank) == std::string_view::npos) {
    return absl::InvalidArgumentError("the text is not JSON: it is empty");
  }
  return Parser(json).Parse();
}

bool AreEqualJson(const JsonValue& a, const JsonValue& b) {
  if (a.type != b.type || a.values.size() != b.values.size()) return false;
  switch (a.type) {
    case JsonType::kNull:
      return true;
    case JsonType::kBoolean:
      return a.boolean == b.boolean;
    case JsonType::kNumber:
      return Decimal::Parse(a.text) == Decimal::Parse(b.text);
    case JsonType::kString:
      return a.text == b.text;
    case JsonType::kArray:
      for (size_t i = 0; i < a.values.size(); ++i) {
        if (!AreEqualJson(a.values[i], b.values[i])) return false;
      }
      return true;
    case JsonType::kObject: {
      HashMap<std::string_view, const JsonValue*> members;
      for (size_t i = 0; i < b.names.size(); ++i) members[b.names[i]] = &b.values[i];
      for (size_t i = 0; i < a.names.size(); ++i) {
        const auto member = members.find(a.names[i]);
        if (member == members.end() || !AreEqualJson(a.values[i], *member->second)) return false;
      }
      return true;
    }
  }
  SPECD_CHECK(false);
  return false;
}

std::string PointerOf(const JsonValue& value) {
  std::string pointer;
  for (const JsonValue* at = &value; at->parent != nullptr; at = at->parent) {
    const size_t position = at - at->parent->values.data();
    const std::string step =
        at->parent->IsObject()
            ? absl::StrReplaceAll(at->parent->names[position], {{"~", "~0"}, {"/", "~1"}})
            : fmt::format("{}", position);
    pointer = fmt::format("/{}{}", step, pointer);
  }
  return "#" + pointer;
}

}  // namespace specd::grammar
