// GrammarText is a constraint of `specd-bench grammar`, with texts that satisfy it.
//
// The build reads the files of schemas/ into the program. Plain data, from the smallest to the
// largest schema, then the other kinds.
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

  grammar::GrammarRequest request() const { return {.kind = kind, .text = std::string(text)}; }
};

std::span<const GrammarText> GrammarTexts();

}  // namespace specd::bench
