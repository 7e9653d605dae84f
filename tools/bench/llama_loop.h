// MakeLlamaLoop runs llama.cpp's sample-and-accept loop on the rounds of a RoundSet, as a peer for
// the benchmark.
//
// The loop does the work of common_sampler_sample_and_accept_n without a grammar. For every row it
// makes an array of (id, logit, p) and runs a chain of samplers over the array. The token goes back
// into the chain. The samplers are llama.cpp's own, from an installed libllama. A build uses
// libllama only if SPECD_LLAMA names its prefix. Safe from any thread; the peer is not.
#pragma once

#include <memory>

#include "tools/bench/peer.h"
#include "tools/bench/round_set.h"

namespace specd::bench {

bool IsLlamaBuiltIn();

// Samples and accepts at every place of every sequence, as if each draft token were the token that
// llama.cpp draws. A run of the same round draws the same tokens again. Null in a build without
// llama.cpp. REQUIRES: rows of fp32, TextbookSampler::Supports(set.verify_case()), and a `set` that
// outlives the peer.
std::unique_ptr<Peer> MakeLlamaLoop(const RoundSet& set);

}  // namespace specd::bench
