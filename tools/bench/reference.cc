#include "tools/bench/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "kernels/core/elements.h"

namespace specd::bench {
namespace {

// If a filter's border is closer than this, single and double precision may disagree.
constexpr double kBorderSlack = 1e-6;

const TokenEdit* FindEdit(const TokenEdit* edits, int32_t count, TokenId id) {
  const auto by_id = [](const TokenEdit& edit, TokenId wanted) { return edit.id < wanted; };
  const TokenEdit* found = std::lower_bound(edits, edits + count, id, by_id);
  return found != edits + count && found->id == id ? found : nullptr;
}

void Penalise(const TokenEdit& edit, const Penalties& penalties, float* logit) {
  if ((edit.flags & kEditSeen) != 0) {
    *logit = *logit > 0 ? *logit / penalties.repetition : *logit * penalties.repetition;
  }
  if (edit.count == 0) return;
  *logit -= penalties.frequency * static_cast<float>(edit.count);
  *logit -= penalties.presence;
}

void ApplyPenalties(const SequenceEdits& edits, const PlaceEdits* place,
                    std::vector<float>* logits) {
  const TokenEdit* overrides = place == nullptr ? nullptr : place->overrides;
  const int32_t num_overrides = place == nullptr ? 0 : place->num_overrides;
  for (int32_t i = 0; i < num_overrides; ++i) {
    Penalise(overrides[i], edits.penalties, &(*logits)[static_cast<size_t>(overrides[i].id)]);
  }
  for (int32_t i = 0; i < edits.num_edits; ++i) {
    const TokenEdit& edit = edits.edits[i];
    if (FindEdit(overrides, num_overrides, edit.id) != nullptr) continue;
    Penalise(edit, edits.penalties, &(*logits)[static_cast<size_t>(edit.id)]);
  }
}

// True if a comes before b: by logit, descending, then by id.
bool Precedes(const std::vector<float>& logits, TokenId a, TokenId b) {
  const float x = logits[static_cast<size_t>(a)];
  const float y = logits[static_cast<size_t>(b)];
  return x != y ? x > y : a < b;
}

}  // namespace

std::vector<float> ReadElements(const RowView& row) {
  std::vector<float> elements(static_cast<size_t>(row.vocab_size));
  for (size_t i = 0; i < elements.size(); ++i) {
    elements[i] = LoadElement(row, static_cast<int64_t>(i));
  }
  return elements;
}

ReferenceRow::ReferenceRow(const RowView& row, const VerifyCase& verify_case,
                           const SequenceEdits& edits, const PlaceEdits* place,
                           const uint32_t* mask) {
  std::vector<float> logits = ReadElements(row);
  for (size_t i = 0; mask != nullptr && i < logits.size(); ++i) {
    if ((mask[i / 32] >> (i % 32) & 1) == 0) logits[i] = -kInfinity;
  }
  ApplyPenalties(edits, place, &logits);
  const auto best = std::max_element(logits.begin(), logits.end());
  argmax_ = static_cast<TokenId>(best - logits.begin());
  if (verify_case.temperature == 0) return;

  const double top = *best;
  probabilities_.reserve(logits.size());
  for (const float logit : logits) {
    probabilities_.push_back(
        std::exp((static_cast<double>(logit) - top) / verify_case.temperature));
  }
  if (verify_case.min_p > 0) ApplyMinP(verify_case.min_p);
  if (verify_case.top_k > 0) ApplyTopK(logits, verify_case.top_k);
  if (verify_case.top_p < 1) ApplyTopP(logits, verify_case.top_p);
  Normalise();
}

void ReferenceRow::ApplyMinP(double min_p) {
  // The greatest weight is 1.
  double doubtful = 0;
  double kept = 0;
  for (double& weight : probabilities_) {
    if (std::abs(weight - min_p) < kBorderSlack * min_p) doubtful += weight;
    if (weight < min_p) weight = 0;
    kept += weight;
  }
  doubtful_mass_ += doubtful / kept;
}

void ReferenceRow::ApplyTopK(const std::vector<float>& logits, int32_t top_k) {
  if (static_cast<size_t>(top_k) >= logits.size()) return;
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::nth_element(ids.begin(), ids.begin() + top_k, ids.end(),
                   [&](TokenId a, TokenId b) { return Precedes(logits, a, b); });
  for (auto id = ids.begin() + top_k; id != ids.end(); ++id) {
    probabilities_[static_cast<size_t>(*id)] = 0;
  }
}

void ReferenceRow::ApplyTopP(const std::vector<float>& logits, double top_p) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < probabilities_.size(); ++i) {
    if (probabilities_[i] > 0) ids.push_back(static_cast<TokenId>(i));
  }
  std::sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return Precedes(logits, a, b); });
  double total = 0;
  for (const TokenId id : ids) total += probabilities_[static_cast<size_t>(id)];
  // The shortest prefix whose mass reaches top_p.
  double prefix = 0;
  for (const TokenId id : ids) {
    double& weight = probabilities_[static_cast<size_t>(id)];
    const double before = prefix / total;
    prefix += weight;
    const double after = prefix / total;
    if (std::abs(before - top_p) < kBorderSlack || std::abs(after - top_p) < kBorderSlack) {
      doubtful_mass_ += weight / total;
    }
    if (before >= top_p) weight = 0;
  }
}

void ReferenceRow::Normalise() {
  double total = 0;
  for (const double weight : probabilities_) total += weight;
  for (double& weight : probabilities_) weight /= total;
}

bool IsDraw(const std::vector<double>& weights, TokenId id, double u, double slack) {
  if (id < 0 || static_cast<size_t>(id) >= weights.size()) return false;
  double total = 0;
  for (const double weight : weights) total += weight;
  double before = 0;
  for (size_t i = 0; i < static_cast<size_t>(id); ++i) before += weights[i];
  const double after = before + weights[static_cast<size_t>(id)];
  return u * total >= before - slack * total && u * total <= after + slack * total;
}

}  // namespace specd::bench
