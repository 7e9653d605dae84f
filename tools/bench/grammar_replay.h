// GrammarReplay times one engine along one text of a constraint, for GrammarSuite.
//
// A run compiles the constraint anew, so that nothing is warm, and follows the tokens of the text
// up to and with the stop id. Before anything is timed, Check follows them once: every mask must
// allow the token that comes next, and the text must be complete at its end. One thread.
//
//   GrammarReplay replay(&compiler, request, tokens, limits);
//   if (absl::Status status = replay.Check(); !status.ok()) return status;
//   replay.Run(&times);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/types.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "tools/bench/suite.h"
#include "tools/bench/timing.h"

namespace specd::bench {

enum class GrammarCase {
  kCompile,
  kFirstMask,
  kColdMask,
  kWarmMask,
  kAccept,
  kRollback,
  kFork,
  kRoundK5,  // SequenceGrammar
  kMemory,
  kFillThreads,  // MaskFiller (grammar_fill.h)
};
inline constexpr CaseWords kGrammarCases[] = {
    {"compile", "compile a constraint that was not seen before"},
    {"first_mask", "the first mask of a grammar that was just compiled"},
    {"cold_mask", "each mask along a text, the first time"},
    {"warm_mask", "the same masks again, by another matcher"},
    {"accept", "each token of a text"},
    {"rollback", "the last five tokens"},
    {"fork", "a copy of a matcher, after each token"},
    {"round_k5", "the six places of a draft of five, and the commit of what is kept"},
    {"memory", "bytes of a compiled grammar, and of what it made along a text"},
    {"fill_threads", "the masks of a batch of such rounds, by one thread and by all"},
};
inline constexpr size_t kNumGrammarCases = std::size(kGrammarCases);

inline std::string_view GrammarCaseName(GrammarCase grammar_case) {
  return kGrammarCases[static_cast<size_t>(grammar_case)].name;
}

// Samples by case: microseconds, or bytes of kMemory. Those of kFillThreads are elsewhere.
using GrammarSamples = std::array<Times, kNumGrammarCases>;

class GrammarReplay {
 public:
  // The draft of a round. Five, as in `verify`.
  static constexpr int32_t kDraft = 5;

  // `tokens` end with a stop id. The compiler outlives the replay.
  GrammarReplay(grammar::GrammarCompiler* compiler, grammar::GrammarRequest request,
                std::vector<TokenId> tokens, int32_t vocab_size)
      : compiler_(compiler),
        request_(std::move(request)),
        tokens_(std::move(tokens)),
        vocab_size_(vocab_size) {}

  // Internal: the engine forbids a token of the text, or does not let it end. ResourceExhausted: a
  // mask meets a limit. Otherwise the error of Compile.
  absl::Status Check() const;
  // Adds samples of every case but kMemory and kFillThreads. REQUIRES: Check succeeded.
  void Run(GrammarSamples* samples) const;

  const grammar::GrammarRequest& request() const { return request_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }

 private:
  using Compiled = std::shared_ptr<const grammar::CompiledGrammar>;

  std::unique_ptr<grammar::GrammarMatcher> NewMatcher(const Compiled& compiled) const;
  void RunMatcher(const Compiled& compiled, GrammarSamples* samples) const;
  void RunRounds(const Compiled& compiled, GrammarSamples* samples) const;

  grammar::GrammarCompiler* compiler_;
  grammar::GrammarRequest request_;
  std::vector<TokenId> tokens_;
  int32_t vocab_size_;
};

}  // namespace specd::bench
