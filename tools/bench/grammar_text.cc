#include "tools/bench/grammar_text.h"

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

}  // namespace

std::span<const GrammarText> GrammarTexts() {
  static const std::vector<GrammarText> texts = MakeTexts();
  return texts;
}

}  // namespace specd::bench
