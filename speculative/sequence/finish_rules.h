// WalkFinishRules decides for the verifier which confirmed tokens are kept: CONTRACT §7, token by
// token.
//
// The walk stops at the first token that finishes the sequence. That token is kept and counted;
// every later token is dropped. The walk looks at one token at a time, so the cut cannot depend on
// how tokens were grouped into rounds. The text side finds stop strings and reports them through
// Verifier::Finish. Pure function, safe from any thread.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/sequence_round.h"

namespace specd {

struct FinishRules {
  std::span<const TokenId> stop_token_ids;
  std::span<const TokenId> eos_token_ids;  // empty if ignore_eos is set
  int64_t min_tokens = 0;  // no stop id and no EOS finishes the sequence up to this number
  int64_t max_tokens = 0;
  // The confirmed token, counted from 1, that completes a constraint which cannot continue; 0:
  // none.
  int32_t grammar_end = 0;
};

struct FinishWalk {
  int32_t num_kept = 0;
  FinishReason reason = FinishReason::kNone;
  TokenId stop_token = kNoToken;  // the id if reason is kStop; none at a grammar's end
};

// Walks `confirmed`. Its first token is output token number kept_before + 1.
FinishWalk WalkFinishRules(const FinishRules& rules, int64_t kept_before,
                           std::span<const TokenId> confirmed);

}  // namespace specd
