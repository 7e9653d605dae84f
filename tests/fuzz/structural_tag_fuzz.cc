// Any bytes as a structural tag: they are refused with a message, or become rules that are all
// defined. Schemas and patterns inside are read by their own front ends.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/base/budget.h"
#include "speculative/grammar/front_ends/regex.h"
#include "speculative/grammar/front_ends/structural_tag.h"
#include "speculative/grammar/json_schema/json_schema.h"
#include "tests/fuzz/grammar_front_end.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  namespace grammar = specd::grammar;
  if (size_bytes > grammar::kFuzzSizeBytesMax) return 0;
  const auto schema = [](std::string_view text, grammar::GrammarRules* rules,
                         std::vector<std::string>* warnings) {
    return grammar::BuildJsonSchema(text, {.whitespace = grammar::Whitespace::kCompact}, rules,
                                    warnings);
  };
  const auto regex = [](std::string_view text, grammar::GrammarRules* rules,
                        std::vector<std::string>*) { return grammar::ParseRegex(text, {}, rules); };
  const std::string_view json(reinterpret_cast<const char*>(data), size_bytes);
  const absl::Status refusal = grammar::Budget::Run(
      {.units = size_t{1} << 20, .bytes = size_t{64} << 20, .levels = grammar::kCompileLevelsMax},
      [&] {
        grammar::GrammarRules rules;
        std::vector<std::string> warnings;
        grammar::CheckFrontEnd(
            rules, grammar::BuildStructuralTag(json, {.build_schema = schema, .build_regex = regex},
                                               &rules, &warnings));
      });
  if (!refusal.ok()) grammar::CheckRefusal(refusal);
  return 0;
}
