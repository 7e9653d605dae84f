// TransformRow writes softmax, renormalised and masked rows for library calls.
//
// docs/ALGORITHMS.md, "Library calls". No other body writes an array as long as a row.
#pragma once

#include "kernels/bodies/truncate.h"
#include "kernels/core/round.h"

namespace specd {

struct ProbabilityFunction {
  WeightFunction weight;
  float mass;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return weight(x) / mass;
  }
};

struct ConstantFunction {
  float value;
  template <typename Value>
  SPECD_INLINE auto operator()(Value) const {
    return Value(value);
  }
};

// Writes the whole row, even if it is bad: a caller that ignores the status gets NaN.
template <Team T>
SPECD_BODY OutcomeStatus TransformRow(T& team, const RowView& view, const RowTransform& transform,
                                      const RowWorkspace& workspace) {
  Row row;
  row.view = view;
  const Distribution p = ReadDistribution(team, row, transform.scale, transform.filters, workspace);
  const bool point = !p.bad() && p.point != kNoToken;
  const WeightFunction weight{p.max, p.scale};
  typename T::Tile tile;
  ForEachTile(team, NumTiles(view.vocab_size), [&](int32_t t) {
    const int32_t first = t * kTileSize;
    const int32_t rest = view.vocab_size - first;
    const int32_t count = rest < kTileSize ? rest : kTileSize;
    float* out = transform.out + first;
    LoadRow(team, p.row, t, kAllSteps, &tile);
    if (p.bad()) {
      team.Store(ConstantFunction{FloatOf(0x7FC00000u)}, tile, count, out);
    } else if (point) {
      team.Store(ConstantFunction{transform.as_logits ? -kInfinity : 0.0f}, tile, count, out);
    } else if (transform.as_logits) {
      team.Store(Identity{}, tile, count, out);
    } else {
      team.Store(ProbabilityFunction{weight, static_cast<float>(p.mass)}, tile, count, out);
    }
  });
  if (point && team.leader()) transform.out[p.point] = transform.as_logits ? kInfinity : 1.0f;
  return p.bad() ? OutcomeStatus::kBadTargetRow : OutcomeStatus::kOk;
}

}  // namespace specd
