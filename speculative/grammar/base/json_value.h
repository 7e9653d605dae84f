// JsonValue is a JSON document as a tree, for schemas and the constants in them.
//
// It keeps what other trees lose: the order of members, and every digit of a number. Two members of
// one name are an error. Plain data; a tree must not move after ParseJson, because a value knows
// its parent.
//
//   auto document = ParseJson(R"({"type": "integer"})");      // unique_ptr, or InvalidArgument
//   const JsonValue* type = (*document)->Find("type");        // null if it is not there
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/base/counted.h"

namespace specd::grammar {

enum class JsonType : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

// "a string", "an object", for messages.
std::string_view NameWithArticle(JsonType type);

struct JsonValue {
  JsonType type = JsonType::kNull;
  bool boolean = false;
  std::string text = {};                // a string's characters; a number as it is written
  std::vector<std::string> names = {};  // of an object's members
  List<JsonValue> values = {};          // of an object's members; an array's items
  const JsonValue* parent = nullptr;
  uint32_t index = 0;  // in the order of the text

  bool IsString() const { return type == JsonType::kString; }
  bool IsArray() const { return type == JsonType::kArray; }
  bool IsObject() const { return type == JsonType::kObject; }
  bool IsBoolean(bool value) const { return type == JsonType::kBoolean && boolean == value; }
  bool IsSchema() const { return type == JsonType::kBoolean || IsObject(); }

  // The member `name` of an object. Null if it is missing, or if this is no object.
  const JsonValue* Find(std::string_view name) const;
};

inline constexpr size_t kJsonSizeBytesMax = size_t{4} << 20;
inline constexpr uint32_t kJsonDepthMax = 256;

absl::StatusOr<std::unique_ptr<const JsonValue>> ParseJson(std::string_view json);

// Equal as JSON Schema compares: 1 equals 1.0, and the order of members does not matter.
bool AreEqualJson(const JsonValue& a, const JsonValue& b);

// The JSON pointer of `value` in its document, as a fragment: "#/properties/a~1b".
std::string PointerOf(const JsonValue& value);

// A budget that is spent while this lives names the pointer of `value`.
inline Budget::Place BudgetPlace(const JsonValue& value) {
  return {&value, [](const void* part) { return PointerOf(*static_cast<const JsonValue*>(part)); }};
}

}  // namespace specd::grammar
