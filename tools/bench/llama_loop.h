// llama.cpp's sample-and-accept loop on the rounds of a RoundSet.
//
// What common_sampler_sample_and_accept_n does without a grammar: for every row an array of (id,
// logit, p), a chain of samplers over it, and the token goes back into the chain. The samplers are
// llama.cpp's own, from an installed libllama; specd is built without one unless SPECD_LLAMA names
// its prefix. Safe from any thread; what it makes is not.
#pragma once

#include <memory>

#include "tools/bench/peer.h"
#include "tools/bench/round_set.h"

namespace specd::bench {

bool IsLlamaBuiltIn();

// Samples and accepts at every place of every sequence, as where each draft token is what llama.cpp
// draws; a run of the same round draws the same again. Null where llama.cpp is not built in.
// REQUIRES: rows of fp32, TextbookSampler::Supports(set.verify_case()), and a longer-lived `set`.
std::unique_ptr<Peer> MakeLlamaLoop(const RoundSet& set);

}  // namespace specd::bench
