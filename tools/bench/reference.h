// ReferenceRow: what one row means, computed the textbook way in double precision.
//
// A benchmark that measures wrong answers is worse than none, so every case is compared with this
// before it is timed. It shares no arithmetic with the kernels: std::exp, a sort, a running sum.
// Only the coins come from the same generator. Immutable once made.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/round.h"
#include "kernels/core/types.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

class ReferenceRow {
 public:
  // The row after steps 1 to 11 of the case; `mask` is a row of bits, null where there is none.
  ReferenceRow(const RowView& row, const VerifyCase& verify_case, const SequenceEdits& edits,
               const PlaceEdits* place, const uint32_t* mask);

  // The id of the greatest logit after step 6; the lowest among equals.
  TokenId argmax() const { return argmax_; }
  double probability(TokenId id) const {
    return IsInside(id) ? probabilities_[static_cast<size_t>(id)] : 0;
  }
  const std::vector<double>& probabilities() const { return probabilities_; }

  // The mass of ids that a filter keeps or drops depending on the last bits of a sum: where they
  // are drawn or not is not for this to judge.
  double doubtful_mass() const { return doubtful_mass_; }

 private:
  bool IsInside(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < probabilities_.size();
  }
  void ApplyMinP(double min_p);
  void ApplyTopK(const std::vector<float>& logits, int32_t top_k);
  void ApplyTopP(const std::vector<float>& logits, double top_p);
  void Normalise();

  std::vector<double> probabilities_;
  TokenId argmax_ = kNoToken;
  double doubtful_mass_ = 0;
};

// Whether `id` is what a coin u in [0, 1) draws from weights that need not sum to 1: the inverse of
// their running sum in the order of ids, give or take `slack` of the whole mass.
bool IsDraw(const std::vector<double>& weights, TokenId id, double u, double slack);

// The elements of a row as the model gave them.
std::vector<float> ReadElements(const RowView& row);

}  // namespace specd::bench
