// MeasureGrammars measures specd's grammar engine for `specd-bench grammar`, beside xgrammar.
//
// Every constraint is compiled, and followed along its texts, by each engine in turn, again and
// again until the time is used. Lines pool the samples of all constraints, and with `each` those of
// one constraint too. A constraint that an engine refuses has one line, the refusal. It runs on the
// calling thread, except for the threads of `fill_threads`, which measures specd alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tools/bench/grammar_replay.h"
#include "tools/bench/output.h"

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

struct GrammarOptions {
  std::vector<GrammarCase> cases = {};  // that are reported; every case is measured
  std::vector<const GrammarText*> texts = {};
  int32_t vocab_size = 0;
  bool each = false;             // lines of single constraints too
  double seconds = 1;            // of timing; each text is run at least twice
  std::string peer_python = {};  // the interpreter of GrammarPeer; empty: no peer
};

absl::Status MeasureGrammars(const GrammarOptions& options, Output* out);

}  // namespace specd::bench
