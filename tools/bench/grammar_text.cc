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

// A constraint NAME of schemas/ in the file NAME.ENDING, with texts NAME.1.txt and so on.
struct Files {
  std::string_view name;
  GrammarKind kind;
  std::string_view ending;
  int num_texts;
};
constexpr Files kFiles[] = {{"any_object", GrammarKind::kJsonObject, "", 1},
                            {"tool_call", GrammarKind::kJsonSchema, "json", 2},
                            {"tree", GrammarKind::kJsonSchema, "json", 1},
                            {"user_record", GrammarKind::kJsonSchema, "json", 2},
                            {"patterns", GrammarKind::kJsonSchema, "json", 1},
                            {"orders", GrammarKind::kJsonSchema, "json", 1},
                            {"shapes", GrammarKind::kJsonSchema, "json", 1},
                            {"settings", GrammarKind::kJsonSchema, "json", 1},
                            {"tags", GrammarKind::kStructuralTag, "json", 1},
                            {"arithmetic", GrammarKind::kEbnf, "ebnf", 1},
                            {"log_line", GrammarKind::kRegex, "regex", 1},
                            {"country", GrammarKind::kChoice, "choice", 2}};

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

std::vector<GrammarText> MakeTexts() {
  std::vector<GrammarText> texts;
  for (const Files& files : kFiles) {
    GrammarText& text = texts.emplace_back(GrammarText{files.name, files.kind, "", {}});
    if (!files.ending.empty()) text.text = FileOf(fmt::format("{}.{}", files.name, files.ending));
    for (int i = 1; i <= files.num_texts; ++i) {
      text.instances.push_back(FileOf(fmt::format("{}.{}.txt", files.name, i)));
    }
  }
  static const std::string many_properties = ManyProperties();
  static const std::string long_string = "\"" + Repeated("value of the list ", 40) + "\"";
  static const std::string long_array = "[" + Repeated("1, ", 200) + "2]";
  const auto add_large = [&](std::string_view name, std::string_view schema,
                             std::string_view instance) {
    texts.push_back({name, GrammarKind::kJsonSchema, schema, {instance}, true});
  };
  add_large("many_properties", many_properties,
            R"({"p17": 1, "p2500": 23, "p4999": 456, "name": "value"})");
  add_large("long_strings", R"({"type":"string","maxLength":1000000})", long_string);
  add_large("large_counts", R"({"type":"array","items":{"type":"integer"},"maxItems":1000000})",
            long_array);
  return texts;
}

}  // namespace

std::span<const GrammarText> GrammarTexts() {
  static const std::vector<GrammarText> texts = MakeTexts();
  return texts;
}

}  // namespace specd::bench
