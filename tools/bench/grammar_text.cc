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

std::vector<GrammarText> MakeTexts() {
  std::vector<GrammarText> texts;
  for (const Files& files : kFiles) {
    GrammarText& text = texts.emplace_back(GrammarText{files.name, files.kind, "", {}});
    if (!files.ending.empty()) text.text = FileOf(fmt::format("{}.{}", files.name, files.ending));
    for (int i = 1; i <= files.num_texts; ++i) {
      text.instances.push_back(FileOf(fmt::format("{}.{}.txt", files.name, i)));
    }
  }
  return texts;
}

}  // namespace

std::span<const GrammarText> GrammarTexts() {
  static const std::vector<GrammarText> texts = MakeTexts();
  return texts;
}

}  // namespace specd::bench
