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

namespace specd::bench {

enum class GrammarCase {
  kCompile,      // GrammarCompiler::CompileAnew
  kFirstMask,    // the first mask of a grammar that was just compiled
  kColdMask,     // each mask along the text, the first time
  kWarmMask,     // the same masks again, by another matcher
  kAccept,       // each token, after its mask
  kRollback,     // the last five tokens
  kFork,         // GrammarMatcher::Fork, after each token
  kRoundK5,      // SequenceGrammar: the six places of a draft of five, and the commit
  kMemory,       // bytes of the compiled grammar and of what it made along the text
  kFillThreads,  // MaskFiller: batches of such rounds (grammar_fill.h)
};
inline constexpr size_t kNumGrammarCases = 10;

std::string_view GrammarCaseName(GrammarCase grammar_case);
std::string_view GrammarCaseSummary(GrammarCase grammar_case);

// Samples by case: microseconds, or bytes of kMemory. Those of kFillThreads are elsewhere.
using GrammarSamples = std::array<std::vector<double>, kNumGrammarCases>;

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

  size_t num_tokens() const { return tokens_.size(); }

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
