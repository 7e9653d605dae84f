// SumPair gives the Sum of two tiles of two rows for the residual pass, and fetches the rows while
// it sums.
//
// With two whole tiles in registers, a multiprocessor could run few warps. Half a tile of both rows
// is therefore fetched at once. The function calls no other.
#pragma once

#include "kernels/bodies/row.h"
#include "kernels/warps/warp_team.h"

namespace specd {

// A row with a cut.
struct CutRow {
  RowView view;
  bool has_cut = false;
  Cut cut;

  SPECD_INLINE float Keep(float x, TokenId id) const {
    if (!has_cut) return x;
    return x > cut.value || (x == cut.value && id <= cut.last) ? x : -kInfinity;
  }
};

namespace internal {

inline constexpr int32_t kPairSteps = kStepsPerTile / 2;

// Fetches the given steps of both rows; bit 0 of `steps` is step `number` of the row.
template <DType kDType>
SPECD_INLINE void FetchPair(const RowView& p, const RowView& q, int32_t number, int32_t lane,
                            uint32_t steps, float (&p_values)[kPairSteps][8],
                            float (&q_values)[kPairSteps][8]) {
  constexpr int32_t kWords = kWordsPerThread<kDType>;
  constexpr int64_t kStepBytes = int64_t{kLanes} * SizeBytes(kDType);
  const int64_t offset = number * kStepBytes + 8 * lane * SizeBytes(kDType);
  const char* const p_data = static_cast<const char*>(p.data) + offset;
  const char* const q_data = static_cast<const char*>(q.data) + offset;
  const bool aligned = BytesPastGranule(p_data) == 0 && BytesPastGranule(q_data) == 0;
  const bool whole = p.vocab_size - number * kLanes >= kPairSteps * kLanes;
  if (aligned && whole && steps == (1u << kPairSteps) - 1) {
    uint32_t p_words[kPairSteps][kWords];
    uint32_t q_words[kPairSteps][kWords];
    SPECD_UNROLL
    for (int32_t step = 0; step < kPairSteps; ++step) {
      LoadWords<kWords>(p_data + step * kStepBytes, p_words[step]);
      LoadWords<kWords>(q_data + step * kStepBytes, q_words[step]);
    }
    SPECD_UNROLL
    for (int32_t step = 0; step < kPairSteps; ++step) {
      Widen<kDType>(p_words[step], p_values[step]);
      Widen<kDType>(q_words[step], q_values[step]);
    }
    return;
  }
  const auto number_of = [&](int32_t step) { return number + step; };
  FetchSteps<kDType>(p, lane, steps, number_of, p_values);
  FetchSteps<kDType>(q, lane, steps, number_of, q_values);
}

template <DType kDType, typename Thread, typename F>
SPECD_INLINE float SumPairAs(WarpTeam<Thread>& team, int32_t lane, const F& f, const CutRow& p,
                             const CutRow& q, int32_t tile_index, uint32_t steps) {
  float sum[8] = {};
  SPECD_NO_UNROLL
  for (int32_t half = 0; half < kStepsPerTile / kPairSteps; ++half) {
    const int32_t number = tile_index * kStepsPerTile + half * kPairSteps;
    const uint32_t wanted = steps >> half * kPairSteps & ((1u << kPairSteps) - 1);
    if (wanted == 0) continue;
    float p_values[kPairSteps][8];
    float q_values[kPairSteps][8];
    FetchPair<kDType>(p.view, q.view, number, lane, wanted, p_values, q_values);
    SPECD_UNROLL
    for (int32_t step = 0; step < kPairSteps; ++step) {
      SPECD_UNROLL
      for (int32_t j = 0; j < 8; ++j) {
        const TokenId id = (number + step) * kLanes + 8 * lane + j;
        sum[j] += f(p.Keep(p_values[step][j], id), q.Keep(q_values[step][j], id));
      }
    }
  }
  return team.SumOfLanes(sum);
}

}  // namespace internal

// f(-inf, y) is 0 for every y, so p is -inf in steps that are not wanted. REQUIRES: both rows have
// one type and one vocabulary.
template <typename Thread, typename F>
SPECD_INLINE float SumPair(WarpTeam<Thread>& team, int32_t lane, const F& f, const CutRow& p,
                           const CutRow& q, int32_t tile_index, uint32_t steps) {
  switch (p.view.dtype) {
    case DType::kFloat32:
      return internal::SumPairAs<DType::kFloat32>(team, lane, f, p, q, tile_index, steps);
    case DType::kBFloat16:
      return internal::SumPairAs<DType::kBFloat16>(team, lane, f, p, q, tile_index, steps);
    case DType::kFloat16:
      return internal::SumPairAs<DType::kFloat16>(team, lane, f, p, q, tile_index, steps);
  }
  return 0;
}

}  // namespace specd
