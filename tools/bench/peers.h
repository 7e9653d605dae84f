// Peer is another sampler that verifies the same rounds as specd, for comparison.
//
// Peer is a seam: the build decides whether there is one, llama.cpp's. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/core/types.h"
#include "tools/bench/round_set.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

class Peer {
 public:
  virtual ~Peer() = default;

  // Prepares for a run of `round`, outside the measured time.
  virtual void Prepare(int32_t round) = 0;

  // Verifies every sequence of the round that was prepared last, and appends its tokens to
  // `tokens`.
  virtual void Run(std::vector<TokenId>* tokens) = 0;
};

// True of cases that llama.cpp samples too: from the target with penalties and filters, without
// masks, scores or draft rows.
inline bool HasPeer(const VerifyCase& verify_case) {
  return verify_case.plan == DraftPlan::kMatching && !verify_case.grammar &&
         verify_case.logprobs < 0;
}

// MakeLlamaLoop runs llama.cpp's sample-and-accept loop on the rounds of a RoundSet, as a peer for
// the benchmark.
//
// The loop does the work of common_sampler_sample_and_accept_n without a grammar. For every row it
// makes an array of (id, logit, p) and runs a chain of samplers over the array. The token goes back
// into the chain. The samplers are llama.cpp's own, from an installed libllama. A build uses
// libllama only if SPECD_LLAMA names its prefix.
//
// Samples and accepts at every place of every sequence, as if each draft token were the token that
// llama.cpp draws. A run of the same round draws the same tokens again. Null in a build without
// llama.cpp. REQUIRES: rows of fp32, HasPeer(set.verify_case()), and a `set` that outlives the
// peer.
std::unique_ptr<Peer> MakeLlamaLoop(const RoundSet& set);
bool IsLlamaBuiltIn();

}  // namespace specd::bench
