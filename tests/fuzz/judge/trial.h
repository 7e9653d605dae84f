// Trial compiles one constraint, takes its first mask and follows random tokens, for the judge.
//
// A walk takes random tokens, and spells words of the constraint's text among them, so that it
// comes past the names of a schema. The ids 0 to 255 must be the bytes.
//
// A trial runs in a child process, because a constraint may end the process (trial_runner.h). What
// ends the process is no result of a trial. One thread.
//
//   const TrialResult result = Trial(compiler, {.eos_id = 400}).Run(request, [] {});
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/core/types.h"
#include "speculative/grammar/compiler/grammar_compiler.h"

namespace specd::grammar {

// Ordered by badness: those from kCrash on are findings.
enum class Outcome : uint8_t {
  kOk = 0,
  kRefused = 1,  // with a message, as it should be
  kCrash = 2,    // the process ended
  kTime = 3,     // more processor time than allowed
  kMemory = 4,   // more memory than allowed
  kFault = 5,    // it was opened, and could not be followed to the end
};
inline constexpr size_t kNumOutcomes = 6;

std::string_view OutcomeName(Outcome outcome);
inline bool IsFinding(Outcome outcome) { return outcome >= Outcome::kCrash; }

struct TrialResult {
  Outcome outcome = Outcome::kOk;
  std::string detail = {};  // a refusal's message, or what was found
  double cpu_ms = 0;        // of the compile
  double first_mask_ms = 0;
  int64_t peak_bytes = 0;  // resident memory, above that before the trial
};

class Trial {
 public:
  struct Options {
    TokenId eos_id = 0;
    int32_t vocab_size = 0;
    int num_walks = 2;
    int num_tokens = 24;  // of each walk
  };

  // The compiler outlives the trial.
  Trial(GrammarCompiler* compiler, const Options& options)
      : compiler_(*compiler), options_(options) {}

  // Calls `opened` after the first mask. The seed chooses the tokens.
  TrialResult Run(const GrammarRequest& request, uint64_t seed,
                  absl::FunctionRef<void()> opened) const;

 private:
  // What is wrong with the walk; empty: nothing.
  std::string Walk(const CompiledGrammar& compiled, const std::vector<std::string>& words,
                   uint64_t seed) const;
  std::vector<TokenId> AllowedIds(const MaskRow& row) const;

  GrammarCompiler& compiler_;
  const Options options_;
};

}  // namespace specd::grammar
