// ReferenceRow computes the meaning of one row the textbook way, in double precision, for the
// checks before timing.
//
// Measuring wrong answers is worse than no benchmark, so every case is compared with this class
// before it is timed. The class shares no arithmetic with the kernels: it uses std::exp, a sort and
// a running sum. Only the coins come from the same generator. Immutable once made.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/round.h"
#include "kernels/core/types.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

class ReferenceRow {
 public:
  // The row after steps 1 to 11 of the case. `mask` is a row of bits, or null.
  ReferenceRow(const RowView& row, const VerifyCase& verify_case, const SequenceEdits& edits,
               const PlaceEdits* place, const uint32_t* mask);

  // The id of the greatest logit after step 6; the lowest among equals.
  TokenId argmax() const { return argmax_; }
  double probability(TokenId id) const {
    return IsInside(id) ? probabilities_[static_cast<size_t>(id)] : 0;
  }
  const std::vector<double>& probabilities() const { return probabilities_; }

  // The mass of ids that a filter keeps or drops by the last bits of a sum. The reference does not
  // judge draws of these ids.
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

// True if a coin u in [0, 1) draws `id` from weights that need not sum to 1. The draw inverts the
// running sum in the order of ids, with a tolerance of `slack` of the whole mass.
bool IsDraw(const std::vector<double>& weights, TokenId id, double u, double slack);

// The elements of a row as the model wrote them.
std::vector<float> ReadElements(const RowView& row);

}  // namespace specd::bench
