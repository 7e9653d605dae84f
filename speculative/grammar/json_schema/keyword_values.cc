#include "speculative/grammar/json_schema/keyword_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "speculative/grammar/base/decimal.h"
#include "speculative/grammar/json_schema/schema_document.h"

namespace specd::grammar {

absl::Status WrongKeywordType(const JsonValue& schema, std::string_view keyword,
                              const JsonValue& value, std::string_view expected) {
  return SchemaReport::Invalid(
      schema, fmt::format("{} is {}, expected {}", keyword, NameWithArticle(value.type), expected));
}

bool HasAnyKeyword(const JsonValue& schema, std::initializer_list<std::string_view> keywords) {
  return std::any_of(keywords.begin(), keywords.end(),
                     [&](std::string_view keyword) { return schema.Find(keyword) != nullptr; });
}

absl::StatusOr<const JsonValue*> FindSchemaList(const JsonValue& schema, std::string_view keyword) {
  const JsonValue* list = schema.Find(keyword);
  if (list == nullptr) return nullptr;
  if (!list->IsArray()) return WrongKeywordType(schema, keyword, *list, "an array of schemas");
  for (const JsonValue& item : list->values) {
    if (!item.IsSchema()) return WrongKeywordType(item, keyword, item, "a schema");
  }
  return list;
}

absl::StatusOr<const JsonValue*> FindSubSchema(const JsonValue& schema, std::string_view keyword) {
  const JsonValue* value = schema.Find(keyword);
  if (value != nullptr && !value->IsSchema()) {
    return WrongKeywordType(schema, keyword, *value, "a schema: an object, true or false");
  }
  return value;
}

absl::StatusOr<const JsonValue*> FindMembers(const JsonValue& schema, std::string_view keyword) {
  const JsonValue* value = schema.Find(keyword);
  if (value != nullptr && !value->IsObject()) {
    return WrongKeywordType(schema, keyword, *value, "an object");
  }
  return value;
}

absl::Status ReadSchemaCount(const JsonValue& schema, std::string_view keyword, uint32_t* count) {
  const JsonValue* value = schema.Find(keyword);
  if (value == nullptr) return absl::OkStatus();
  const bool is_number = value->type == JsonType::kNumber;
  const Decimal number = is_number ? Decimal::Parse(value->text) : Decimal();
  if (!is_number || !number.IsInteger() || number.IsNegative()) {
    return SchemaReport::Invalid(
        schema, fmt::format("{} is {}, expected a whole number, at least 0", keyword,
                            is_number ? value->text : NameWithArticle(value->type)));
  }
  if (number <= Decimal::FromInteger(kSchemaCountMax)) {
    *count = static_cast<uint32_t>(std::stoul(number.WholeDigits()));
  } else if (keyword.substr(0, 3) == "min") {
    return absl::ResourceExhaustedError(
        fmt::format("{}: {} is {}, allowed are 0 to {}; no output is as long, so ask for less",
                    PointerOf(schema), keyword, value->text, kSchemaCountMax));
  } else {
    *count = kUnbounded;
  }
  return absl::OkStatus();
}

}  // namespace specd::grammar
