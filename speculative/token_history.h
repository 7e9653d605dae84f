// The tokens that stand before a place: what processors decide by.
//
// Plain data; a view owns nothing.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/core/types.h"

namespace specd {

// What a sequence held before it was opened here. All state is rebuilt from it, so that a sequence
// can move between engines, be preempted and return: its output goes on at outputs.size().
struct SequenceHistory {
  std::span<const TokenId> prompt;
  std::span<const TokenId> outputs;
};

// Prompt, output and the draft tokens before a place, in order; every id is inside the vocabulary.
struct TokenHistory {
  std::span<const TokenId> tokens;
  size_t num_prompt = 0;
  size_t num_kept = 0;  // prompt and kept output; the draft prefix follows

  std::span<const TokenId> outputs() const { return tokens.subspan(num_prompt); }
};

}  // namespace specd
