// GrammarText is a constraint of `specd-bench grammar`, with texts that satisfy it.
//
// The build reads the files of schemas/ into the program. Plain data, from the smallest to the
// largest schema, then the other
// kinds, then large schemas, which are made here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "speculative/grammar/base/grammar_request.h"

namespace specd::bench {

struct GrammarText {
  std::string_view name;
  grammar::GrammarKind kind;
  std::string_view text;
  std::vector<std::string_view> instances;
  // Schemas that ask for much: counts of a million, thousands of properties. They are measured only
  // where they are named, because they would decide the percentiles of all.
  bool is_large = false;

  grammar::GrammarRequest request() const { return {.kind = kind, .text = std::string(text)}; }
};

std::span<const GrammarText> GrammarTexts();

}  // namespace specd::bench
