// Any bytes as a structural tag: they are refused with a message, or become rules that are all
// defined. A schema or a pattern inside stands for its own text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/structural_tag.h"
#include "tests/fuzz/grammar_front_end.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  namespace grammar = specd::grammar;
  if (size_bytes > grammar::kFuzzSizeBytesMax) return 0;
  const auto own_text = [](std::string_view text, grammar::GrammarRules* rules,
                           std::vector<std::string>*) -> absl::StatusOr<grammar::ExprId> {
    return rules->Literal(text);
  };
  grammar::GrammarRules rules;
  std::vector<std::string> warnings;
  const std::string_view json(reinterpret_cast<const char*>(data), size_bytes);
  grammar::CheckFrontEnd(
      rules, grammar::BuildStructuralTag(json, {.build_schema = own_text, .build_regex = own_text},
                                         &rules, &warnings));
  return 0;
}
