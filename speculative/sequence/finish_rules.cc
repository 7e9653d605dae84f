#include "speculative/sequence/finish_rules.h"

#include <algorithm>

namespace specd {
namespace {

bool Contains(std::span<const TokenId> ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

FinishWalk WalkFinishRules(const FinishRules& rules, int64_t kept_before,
                           std::span<const TokenId> confirmed) {
  FinishWalk walk;
  for (TokenId id : confirmed) {
    ++walk.num_kept;
    const int64_t number = kept_before + walk.num_kept;
    // At one token a stop outranks the length: a reply that ends itself on its last allowed token
    // has ended itself.
    if (number > rules.min_tokens &&
        (Contains(rules.stop_token_ids, id) || Contains(rules.eos_token_ids, id))) {
      walk.reason = FinishReason::kStop;
      walk.stop_token = id;
      return walk;
    }
    if (walk.num_kept == rules.grammar_end) {
      walk.reason = FinishReason::kStop;
      return walk;
    }
    if (number >= rules.max_tokens) {
      walk.reason = FinishReason::kLength;
      return walk;
    }
  }
  return walk;
}

}  // namespace specd
