// LlamaLoop runs llama.cpp's sample-and-accept loop on the rounds of a RoundSet, as the peer of
// `specd-bench verify`.
//
// The loop does the work of common_sampler_sample_and_accept_n without a grammar. For every row it
// makes an array of (id, logit, p) and runs a chain of samplers over the array. The token goes back
// into the chain. The samplers are llama.cpp's own, from an installed libllama. A build uses
// libllama only if SPECD_LLAMA names its prefix. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/core/types.h"
#include "tools/bench/round_set.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

// True of cases that llama.cpp samples too: from the target with penalties and filters, without
// masks, scores or draft rows.
inline bool HasPeer(const VerifyCase& verify_case) {
  return verify_case.plan == DraftPlan::kMatching && !verify_case.grammar &&
         verify_case.logprobs < 0;
}

class LlamaLoop {
 public:
  virtual ~LlamaLoop() = default;

  // Prepares for a run of `round`, outside the measured time.
  virtual void Prepare(int32_t round) = 0;
  // Samples and accepts at every place of every sequence of the prepared round, as if each draft
  // token were the token that llama.cpp draws, and appends the tokens. A run of the same round
  // draws the same tokens again.
  virtual void Run(std::vector<TokenId>* tokens) = 0;
};

// Whether the program was built with llama.cpp.
bool HasLlama();
// REQUIRES: HasLlama(), rows of fp32, HasPeer(set.verify_case()), and a
// `set` that outlives the loop.
std::unique_ptr<LlamaLoop> MakeLlamaLoop(const RoundSet& set);

}  // namespace specd::bench
