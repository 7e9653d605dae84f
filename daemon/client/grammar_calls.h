// The library calls of <specd/grammar.h>: compiled grammars, matchers, and masks of a batch.
//
// grammar_api.cc wraps these functions for C. Errors are made with ipc/base/error.h, and nothing is
// written before everything is checked. Threads: as the header says.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client/grammar_tokenizer.h"
#include "ipc/include/specd/grammar.h"
#include "speculative/grammar/compiler/compiled_grammar.h"
#include "speculative/grammar/matchers/grammar_matcher.h"

// Objects of the C interface. The tokenizer comes first: its vocabulary outlives the rest.
struct specd_tokenizer {
  std::shared_ptr<specd::GrammarTokenizer> tokenizer;
};

struct specd_grammar {
  std::shared_ptr<specd::GrammarTokenizer> tokenizer;
  std::shared_ptr<const specd::grammar::CompiledGrammar> compiled;
  std::vector<const char*> warnings;  // those of `compiled`
};

struct specd_matcher {
  std::shared_ptr<specd::GrammarTokenizer> tokenizer;
  std::unique_ptr<specd::grammar::GrammarMatcher> matcher;
  std::string forced_text;  // the last answer of specd_matcher_forced_text
};

namespace specd {

absl::StatusOr<std::unique_ptr<specd_grammar>> CompileGrammar(const specd_tokenizer& tokenizer,
                                                              const specd_grammar_options& options);
absl::StatusOr<std::unique_ptr<specd_matcher>> NewMatcher(const specd_grammar& grammar,
                                                          const specd_ids& stop_ids);
absl::Status WriteMask(specd_matcher* matcher, int32_t* words, uint64_t num_words);
// An error if the last step or mask of a matcher met a limit.
absl::Status CheckFault(grammar::MatcherFault fault);
absl::Status RollBack(specd_matcher* matcher, uint64_t num_ids);

// REQUIRES: rows.words and every matcher are there.
absl::Status FillMasks(std::span<specd_matcher* const> matchers, const specd_mask_rows& rows);

}  // namespace specd
