// Any bytes as a choice: they are refused with a message, or become one automaton.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "speculative/grammar/front_ends/choice.h"
#include "tests/fuzz/grammar_front_end.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  namespace grammar = specd::grammar;
  if (size_bytes > grammar::kFuzzSizeBytesMax) return 0;
  grammar::GrammarRules rules;
  const std::string_view json(reinterpret_cast<const char*>(data), size_bytes);
  grammar::CheckFrontEnd(rules, grammar::BuildChoice(json, &rules));
  return 0;
}
