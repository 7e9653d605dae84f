// TokenHistory holds the tokens before a place, for processors.
//
// Plain data; a view owns nothing. Thread-compatible.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/core/sequence_round.h"
#include "kernels/core/types.h"

namespace specd {

// The tokens that a sequence held before it was opened here. All state is rebuilt from them, so a
// sequence can move between engines, be preempted and return. Its output continues at
// outputs.size().
struct SequenceHistory {
  std::span<const TokenId> prompt;
  std::span<const TokenId> outputs;
  // Of a sequence that another verifier had open, under this handle; 0: it is new.
  SequenceHandle handle = 0;
  size_t num_given = 0;           // of the outputs: those that its stream does not have
  double cumulative_logprob = 0;  // of the outputs
  FinishReason finish_reason = FinishReason::kNone;  // kNone: it goes on
  TokenId stop_token = kNoToken;
};

// Prompt, output and the draft tokens before a place, in order; every id is inside the vocabulary.
struct TokenHistory {
  std::span<const TokenId> tokens;
  size_t num_prompt = 0;
  size_t num_kept = 0;  // prompt and kept output; the draft prefix follows

  std::span<const TokenId> outputs() const { return tokens.subspan(num_prompt); }
};

}  // namespace specd
