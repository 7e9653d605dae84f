#include <algorithm>
#include <cmath>
#include <cstddef>
#include <unordered_map>

#include "kernels/core/elements.h"
#include "kernels/core/philox.h"
#include "tools/bench/peers.h"

namespace specd::bench {

bool TextbookSampler::Supports(const VerifyCase& verify_case) {
  return verify_case.plan == DraftPlan::kMatching && !verify_case.grammar &&
         verify_case.logprobs < 0;
}

void TextbookSampler::Run(std::vector<TokenId>* tokens) {
  for (int32_t s = 0; s < set_.shape().batch; ++s) {
    const Task& task = set_.task(round_, s);
    for (int32_t place = 0; place <= task.draft.num_nodes; ++place) {
      const TokenId token = Next(task, place);
      tokens->push_back(token);
      if (place < task.draft.num_nodes && token != task.draft.tokens[place]) break;
    }
  }
}

TokenId TextbookSampler::Next(const Task& task, int32_t place) {
  const RowView row = RowAt(set_.target(), task.draft.target_rows[place]);
  candidates_.clear();
  for (int32_t id = 0; id < row.vocab_size; ++id) {
    candidates_.push_back({id, LoadElement(row, id), 0});
  }
  if (set_.verify_case().num_penalised > 0) Penalise(task, place);
  if (set_.verify_case().temperature == 0) {
    const auto less = [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; };
    return std::max_element(candidates_.begin(), candidates_.end(), less)->id;
  }
  Filter();
  const CoinKey key = SampleCoin(task.first_position + static_cast<uint32_t>(place));
  return Draw(CoinToDouble(KeyedCoins(task.seed)(key)));
}

void TextbookSampler::Penalise(const Task& task, int32_t place) {
  std::unordered_map<TokenId, TokenEdit> edits;
  for (int32_t i = 0; i < task.edits.num_edits; ++i) {
    edits[task.edits.edits[i].id] = task.edits.edits[i];
  }
  const PlaceEdits& overrides = task.places[place];
  for (int32_t i = 0; i < overrides.num_overrides; ++i) {
    edits[overrides.overrides[i].id] = overrides.overrides[i];
  }
  const Penalties& penalties = task.edits.penalties;
  for (Candidate& candidate : candidates_) {
    const auto found = edits.find(candidate.id);
    if (found == edits.end()) continue;
    float& logit = candidate.logit;
    if ((found->second.flags & kEditSeen) != 0) {
      logit = logit > 0 ? logit / penalties.repetition : logit * penalties.repetition;
    }
    if (found->second.count == 0) continue;
    logit -= penalties.frequency * static_cast<float>(found->second.count);
    logit -= penalties.presence;
  }
}

// Leaves the candidates that the filters keep, with weights, in the order of ids.
void TextbookSampler::Filter() {
  const VerifyCase& verify_case = set_.verify_case();
  const auto precedes = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  float top = -kInfinity;
  for (const Candidate& candidate : candidates_) top = std::max(top, candidate.logit);
  const auto temperature = static_cast<float>(verify_case.temperature);
  if (verify_case.min_p > 0) {
    const float least = top + temperature * std::log(static_cast<float>(verify_case.min_p));
    std::erase_if(candidates_, [least](const Candidate& c) { return c.logit < least; });
  }
  if (verify_case.top_k > 0 && static_cast<size_t>(verify_case.top_k) < candidates_.size()) {
    const auto end = candidates_.begin() + verify_case.top_k;
    std::partial_sort(candidates_.begin(), end, candidates_.end(), precedes);
    candidates_.erase(end, candidates_.end());
  }
  double total = 0;
  for (Candidate& candidate : candidates_) {
    candidate.weight = std::exp((candidate.logit - top) / temperature);
    total += candidate.weight;
  }
  if (verify_case.top_p < 1) {
    std::sort(candidates_.begin(), candidates_.end(), precedes);
    double prefix = 0;
    size_t kept = 0;
    while (kept < candidates_.size() && prefix < verify_case.top_p * total) {
      prefix += candidates_[kept++].weight;
    }
    candidates_.resize(kept);
  }
  if (verify_case.top_k > 0 || verify_case.top_p < 1) {
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  }
}

TokenId TextbookSampler::Draw(double u) const {
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double prefix = 0;
  for (const Candidate& candidate : candidates_) {
    prefix += candidate.weight;
    if (prefix > u * total) return candidate.id;
  }
  return candidates_.back().id;
}

}  // namespace specd::bench
