// Which of the confirmed tokens are kept: CONTRACT §7, token by token.
//
// The walk stops at the first token that finishes the sequence; that token is kept and counted and
// everything after it never existed. Because it looks at one token at a time, the cut cannot depend
// on how tokens were grouped into rounds. Stop strings are found by the text side, which sees text;
// it reports them through Verifier::Finish.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/sequence_round.h"

namespace specd {

struct FinishRules {
  std::span<const TokenId> stop_token_ids;
  std::span<const TokenId> eos_token_ids;  // empty where ignore_eos is set
  int64_t min_tokens = 0;  // tokens up to this number finish by no stop id and no EOS
  int64_t max_tokens = 0;
};

struct FinishWalk {
  int32_t num_kept = 0;
  FinishReason reason = FinishReason::kNone;
  TokenId stop_token = kNoToken;  // the id, where reason is kStop
};

// Walks `confirmed`, of which the first is output token number kept_before + 1.
FinishWalk WalkFinishRules(const FinishRules& rules, int64_t kept_before,
                           std::span<const TokenId> confirmed);

}  // namespace specd
