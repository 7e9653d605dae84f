// GrammarReplay times one engine along one text of a constraint, for GrammarSuite, and FillBatch
// times MaskFiller on a batch of constrained sequences.
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
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/types.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "speculative/sequence/sequence_grammar.h"
#include "tools/bench/suite.h"
#include "tools/bench/timing.h"

namespace specd::bench {

enum class GrammarCase {
  kCompile,
  kFirstMask,
  kColdMask,
  kWarmMask,
  kRoundK5,  // SequenceGrammar
  kMemory,
  kFillThreads,  // FillBatch
};
inline constexpr CaseWords kGrammarCases[] = {
    {"compile", "compile a constraint that was not seen before"},
    {"first_mask", "the first mask of a grammar that was just compiled"},
    {"cold_mask", "each mask along a text, the first time"},
    {"warm_mask", "the same masks again, by another matcher"},
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
  // A text that is shorter has no round.
  bool HasRounds() const { return tokens_.size() > kDraft; }
  // At `at` of the text of a constraint that is compiled for this call.
  SequenceGrammar NewSequence(size_t at) const;

 private:
  using Compiled = std::shared_ptr<const grammar::CompiledGrammar>;

  std::unique_ptr<grammar::GrammarMatcher> NewMatcher(const Compiled& compiled) const;
  SequenceGrammar NewSequence(const Compiled& compiled, size_t at) const;
  void RunMatcher(const Compiled& compiled, GrammarSamples* samples) const;
  void RunRounds(const Compiled& compiled, GrammarSamples* samples) const;

  grammar::GrammarCompiler* compiler_;
  grammar::GrammarRequest request_;
  std::vector<TokenId> tokens_;
  int32_t vocab_size_;
};

// A batch of constrained sequences, and threads that make their masks.
struct FillShape {
  int32_t num_sequences = 0;
  int32_t threads = 1;
};
// Microseconds for a batch: the first filling is cold, because every state and mask is new.
struct FillTimes {
  Times cold;
  Times warm;
};
inline constexpr int kWarmFills = 20;

// Each sequence has a constraint of its own, compiled for this batch, and stands somewhere in the
// text of one of the replays, which are in turn those that are longer than a draft. Its draft is
// what follows there. Adds the times. REQUIRES: Check succeeded for each.
void FillBatch(std::span<const GrammarReplay* const> replays, const FillShape& shape,
               FillTimes* times);

}  // namespace specd::bench
