// The peaks of a row tell the bodies which steps hold large elements, without a read of the row.
//
// KthPeak estimates the k-th largest element. A body uses peaks after it has read the row once.
#pragma once

#include "kernels/bodies/cut_functions.h"
#include "kernels/bodies/distribution.h"

namespace specd {

// The least value of an element above -inf.
inline constexpr float kLowestFloat = -0x1.fffffep+127f;

SPECD_INLINE uint32_t StepsFrom(const Distribution& p, int32_t tile_index, float floor) {
  return StepsFrom(p.stats.peaks, tile_index, floor);
}

// The k-th largest of many values that are not above `max`, or a value a little below it. The
// search halves values and floats in turn.
template <Team T>
SPECD_INLINE float KthByLane(T& team, const float* values, int32_t num, float max, uint64_t k) {
  Between bracket{-kInfinity, FloatOfKey(OrderedKey(max + 0.0f) + 1)};
  for (bool by_value = true;; by_value = !by_value) {
    const float middle = MiddleOf(bracket, by_value);
    if (!(middle > bracket.low && middle < bracket.high)) return bracket.low;
    const auto count =
        static_cast<uint64_t>(team.CountWhere(num, [&](int32_t i) { return values[i] >= middle; }));
    (count >= k ? bracket.low : bracket.high) = middle;
    if (count >= k && count - k <= k / 8) return bracket.low;
  }
}

// An estimate of the k-th largest element: the k-th largest peak. At least k elements are not below
// it, and few more if the best are spread over the row. -inf if there are fewer steps.
template <Team T>
SPECD_BODY float KthPeak(T& team, const Distribution& p, uint64_t k) {
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  const RowView peaks{p.stats.peaks, DType::kFloat32, num_tiles * kStepsPerTile, {}};
  if (static_cast<uint64_t>(peaks.vocab_size) < k) return -kInfinity;
  if constexpr (LooksByLane<T>) {
    return KthByLane(team, p.stats.peaks, peaks.vocab_size, p.max, k);
  } else {
    typename T::Tile tile;
    int32_t loaded = -1;
    uint32_t low = OrderedKey(-kInfinity);
    uint32_t high = OrderedKey(p.max) + 1;
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      uint64_t count = 0;
      for (int32_t t = 0; t < NumTiles(peaks.vocab_size); ++t) {
        if (t != loaded) team.Load(peaks, t, kAllSteps, Identity{}, &tile);
        loaded = t;
        count += static_cast<uint64_t>(team.Count(AtLeast{FloatOfKey(middle)}, tile));
      }
      (count >= k ? low : high) = middle;
      if (count >= k && count - k <= k / 8) break;
    }
    return FloatOfKey(low);
  }
}

}  // namespace specd
