// Kept gives the tokens of a round's answer, for tests that compare them.
// A pure function, safe from any thread.
#pragma once

#include <vector>

#include "kernels/core/sequence_round.h"

namespace specd {

inline std::vector<TokenId> Kept(const SequenceResult& result) {
  return {result.tokens, result.tokens + result.num_kept};
}

}  // namespace specd
