#include "speculative/params/params.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace specd {
namespace {

// DraftParams and SequenceParams give these four fields the same names.
template <class Params>
Filters FiltersFrom(const Params& params, int32_t vocab_size) {
  Filters filters;
  // The product is exact, because only the exponent changes. 0 would ask for a prefix without mass,
  // which is empty. 1 asks for the first id, as every smaller top_p does.
  const uint64_t top_p = params.top_p * static_cast<double>(kTopPOff);
  filters.top_p = std::max<uint64_t>(top_p, 1);
  if (params.top_k > 0 && params.top_k < vocab_size) {
    filters.top_k = static_cast<int32_t>(params.top_k);
  }
  if (params.min_p > 0) filters.min_p = static_cast<float>(std::log2(params.min_p));
  filters.joint = params.filter_order == FilterOrder::kJoint;
  return filters;
}

}  // namespace

bool IsGreedy(const SequenceParams& params) {
  return params.temperature < kGreedyTemperature || params.top_k == 1;
}

VerifyMethod SequenceMethod(const SequenceParams& params) {
  if (IsLossy(params.verify)) return params.verify;
  if (IsGreedy(params)) return VerifyMethod::kGreedy;
  const bool is_auto = params.verify == VerifyMethod::kAuto;
  return is_auto && params.rng == Rng::kSglang ? VerifyMethod::kExactMatch : params.verify;
}

VerifyMethod ResolveMethod(VerifyMethod sequence_method, const DraftShape& draft) {
  switch (sequence_method) {
    case VerifyMethod::kAuto:
      if (!draft.any_drawn) return VerifyMethod::kExactMatch;
      return draft.is_tree ? VerifyMethod::kTree : VerifyMethod::kBlock;
    case VerifyMethod::kTree:
      return draft.is_tree ? VerifyMethod::kTree : VerifyMethod::kToken;
    case VerifyMethod::kTraversal:
      return draft.is_tree ? VerifyMethod::kTraversal : VerifyMethod::kBlock;
    default:
      return sequence_method;
  }
}

float ScaleFor(double temperature) { return static_cast<float>(std::numbers::log2e / temperature); }

Filters MakeFilters(const SequenceParams& params, int32_t vocab_size) {
  return IsGreedy(params) ? Filters{} : FiltersFrom(params, vocab_size);
}

Filters MakeFilters(const DraftParams& params, int32_t vocab_size) {
  return FiltersFrom(params, vocab_size);
}

LossyRule MakeLossyRule(const SequenceParams& params) {
  LossyRule rule;
  const bool is_typical = params.verify == VerifyMethod::kTypical;
  rule.epsilon = params.typical_epsilon;
  rule.delta = is_typical ? params.typical_delta : params.relaxed_delta;
  rule.single = params.threshold_single;
  rule.acc = params.threshold_acc;
  rule.num_best = static_cast<int32_t>(params.relaxed_n);
  rule.only_thoughts = params.relaxed_thinking;
  rule.is_greedy = IsGreedy(params);
  rule.num_rates = static_cast<int32_t>(params.synthetic_rates.size());
  return rule;
}

Penalties MakePenalties(const SequenceParams& params) {
  return {static_cast<float>(params.repetition_penalty),
          static_cast<float>(params.frequency_penalty),
          static_cast<float>(params.presence_penalty)};
}

ScoreRequest MakeScoreRequest(const SequenceParams& params) {
  ScoreRequest request;
  if (params.logprobs < 0) return request;
  request.enabled = true;
  request.mode = params.logprobs_mode;
  request.num_top = static_cast<int32_t>(params.logprobs);
  request.chosen = params.logprob_token_ids.data();
  request.num_chosen = static_cast<int32_t>(params.logprob_token_ids.size());
  return request;
}

}  // namespace specd
