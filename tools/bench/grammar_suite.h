// MeasureGrammars measures specd's grammar engine for `specd-bench grammar`, beside xgrammar.
//
// Every constraint is compiled, and followed along its texts up to and with the stop id, by each
// engine in turn, again and again until the time is used. Before that each engine follows each
// text once: every mask must allow the token that comes next, and the text must be complete at its
// end. Lines pool the samples of all constraints. It runs on the calling thread.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "speculative/grammar/base/grammar_request.h"
#include "tools/bench/output.h"
#include "tools/bench/suite.h"

namespace specd::bench {

// A constraint, with texts that satisfy it, from the files of schemas/.
struct GrammarText {
  std::string_view name;
  grammar::GrammarKind kind = grammar::GrammarKind::kJsonObject;
  std::string_view text = "";
  std::vector<std::string_view> instances = {};
};
// From the smallest to the largest schema, then the other kinds.
const std::vector<GrammarText>& GrammarTexts();

// The flags are those of GrammarCommand. Internal: a mask forbids a token of a text, or an engine
// refuses a constraint; the error names both.
absl::Status MeasureGrammars(const Flags& flags, const std::vector<GrammarText>& texts,
                             Output* out);

}  // namespace specd::bench
