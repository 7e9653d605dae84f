// ScoreRequest and TokenScore describe logprobs and logits of tokens for sequences and score calls.
//
// CONTRACT §3 says which row a score comes from. Plain data.
#pragma once

#include <cstdint>

#include "kernels/core/numerics.h"
#include "kernels/core/types.h"

namespace specd {

enum class ScoreMode : uint32_t {
  kRawLogprob = 0,        // the row as it arrived, scaled and capped
  kProcessedLogprob = 1,  // after step 11; greedy: after step 6
  kRawLogit = 2,
  kProcessedLogit = 3,
  kUnfilteredLogprob = 4,  // after step 8; greedy: after step 6
};

// True if the mode describes the row as it arrived, without the steps of the sequence.
SPECD_INLINE constexpr bool IsRaw(ScoreMode mode) {
  return mode == ScoreMode::kRawLogprob || mode == ScoreMode::kRawLogit;
}

// True if the mode gives logprobs. The others give logits.
SPECD_INLINE constexpr bool GivesLogprobs(ScoreMode mode) {
  return mode != ScoreMode::kRawLogit && mode != ScoreMode::kProcessedLogit;
}

struct ScoreRequest {
  bool enabled = false;
  ScoreMode mode = ScoreMode::kRawLogprob;
  int32_t num_top = 0;
  const TokenId* chosen = nullptr;
  int32_t num_chosen = 0;
};

struct TokenScore {
  TokenId id = kNoToken;  // kNoToken if a row has fewer ids above -inf than the request
  float value = -kInfinity;
  int32_t rank = 0;  // the score rank: 1 + the number of ids with a strictly greater value
};

// The number of scores of one token: its own, the num_top best (value descending, id ascending),
// and the chosen ids.
SPECD_INLINE constexpr int32_t NumScores(const ScoreRequest& request) {
  return request.enabled ? 1 + request.num_top + request.num_chosen : 0;
}

}  // namespace specd
