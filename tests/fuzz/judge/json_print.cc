#include "tests/fuzz/judge/json_print.h"

#include "speculative/grammar/json_schema/json_text.h"

namespace specd::grammar {

std::string PrintJson(const JsonValue& value) {
  switch (value.type) {
    case JsonType::kNull:
      return "null";
    case JsonType::kBoolean:
      return value.boolean ? "true" : "false";
    case JsonType::kNumber:
      return value.text;
    case JsonType::kString:
      return QuoteJson(value.text);
    case JsonType::kArray:
    case JsonType::kObject:
      break;
  }
  std::string text;
  for (size_t i = 0; i < value.values.size(); ++i) {
    if (i > 0) text += ',';
    if (value.IsObject()) text += QuoteJson(value.names[i]) + ":";
    text += PrintJson(value.values[i]);
  }
  return value.IsObject() ? "{" + text + "}" : "[" + text + "]";
}

}  // namespace specd::grammar
