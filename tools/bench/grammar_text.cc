#include "tools/bench/grammar_text.h"

#include <fmt/format.h>

#include <string>

#include "kernels/core/check.h"
#include "tools/bench/schema_files.h"

namespace specd::bench {
namespace {

using grammar::GrammarKind;

// Without the newline at its end. The name is one of ours.
std::string_view FileOf(std::string_view name) {
  for (const SchemaFile& file : kSchemaFiles) {
    if (file.name == name) return file.text.substr(0, file.text.size() - 1);
  }
  SPECD_CHECK(false);
}

std::vector<GrammarText> MakeTexts() {
  return {
      {"any_object", GrammarKind::kJsonObject, "", {FileOf("any_object.1.txt")}},
      {"tool_call",
       GrammarKind::kJsonSchema,
       FileOf("tool_call.json"),
       {FileOf("tool_call.1.txt"), FileOf("tool_call.2.txt")}},
      {"tree", GrammarKind::kJsonSchema, FileOf("tree.json"), {FileOf("tree.1.txt")}},
      {"user_record",
       GrammarKind::kJsonSchema,
       FileOf("user_record.json"),
       {FileOf("user_record.1.txt"), FileOf("user_record.2.txt")}},
      {"patterns", GrammarKind::kJsonSchema, FileOf("patterns.json"), {FileOf("patterns.1.txt")}},
      {"orders", GrammarKind::kJsonSchema, FileOf("orders.json"), {FileOf("orders.1.txt")}},
      {"shapes", GrammarKind::kJsonSchema, FileOf("shapes.json"), {FileOf("shapes.1.txt")}},
      {"settings", GrammarKind::kJsonSchema, FileOf("settings.json"), {FileOf("settings.1.txt")}},
      {"tags", GrammarKind::kStructuralTag, FileOf("tags.json"), {FileOf("tags.1.txt")}},
      {"arithmetic", GrammarKind::kEbnf, FileOf("arithmetic.ebnf"), {FileOf("arithmetic.1.txt")}},
      {"log_line", GrammarKind::kRegex, FileOf("log_line.regex"), {FileOf("log_line.1.txt")}},
      {"country",
       GrammarKind::kChoice,
       FileOf("country.choice"),
       {FileOf("country.1.txt"), FileOf("country.2.txt")}},
  };
}

std::string ManyProperties() {
  std::string properties;
  for (int i = 0; i < 5000; ++i) {
    properties += fmt::format("{}\"p{}\":{{\"type\":\"integer\"}}", i > 0 ? "," : "", i);
  }
  return fmt::format(R"({{"type":"object","properties":{{{}}}}})", properties);
}

std::string Repeated(std::string_view part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

}  // namespace

std::span<const GrammarText> GrammarTexts() {
  static const std::vector<GrammarText> texts = MakeTexts();
  return texts;
}

std::span<const GrammarText> LargeGrammarTexts() {
  static const std::string many_properties = ManyProperties();
  static const std::string long_string = "\"" + Repeated("value of the list ", 40) + "\"";
  static const std::string long_array = "[" + Repeated("1, ", 200) + "2]";
  static const std::vector<GrammarText> texts = {
      {"many_properties",
       GrammarKind::kJsonSchema,
       many_properties,
       {R"({"p17": 1, "p2500": 23, "p4999": 456, "name": "value"})"}},
      {"long_strings",
       GrammarKind::kJsonSchema,
       R"({"type":"string","maxLength":1000000})",
       {long_string}},
      {"large_counts",
       GrammarKind::kJsonSchema,
       R"({"type":"array","items":{"type":"integer"},"maxItems":1000000})",
       {long_array}},
  };
  return texts;
}

}  // namespace specd::bench
