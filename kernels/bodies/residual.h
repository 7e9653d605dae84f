// The residual (p - q)+: what a rejected token is replaced from.
//
// docs/ALGORITHMS.md, "Chains: token". Two rounded products and a difference, never fused: where
// the two rows are identical the residual is exactly 0.
#pragma once

#include "kernels/bodies/sample.h"

namespace specd {

// max(a * w_p - b * w_q, 0) with weights relative to each row's maximum.
struct ResidualFunction {
  WeightFunction p;
  WeightFunction q;
  float a;  // 1 / mass of p
  float b;  // 1 / mass of q
  template <typename Value>
  SPECD_INLINE auto operator()(Value x, Value y) const {
    return PositivePart(a * p(x) - b * q(y));
  }
};

// Draws from (p - q)+, or returns kNoToken where nothing is left. `masses` has one entry for each
// tile. REQUIRES: neither is bad; both rows have the same vocabulary.
template <Team T>
SPECD_BODY TokenId SampleResidual(T& team, const Distribution& p, const Distribution& q,
                                  uint64_t coin, float* masses) {
  // A point mass q takes exactly one id from p, as a one-hot draft does. A point mass p can only
  // give its id: either that is the residual, or nothing is left and p itself is drawn.
  if (q.point != kNoToken) return SampleWithout(team, p, q.point, coin);
  if (p.point != kNoToken) return p.point;

  const ResidualFunction residual{{p.max, p.scale},
                                  {q.max, q.scale},
                                  static_cast<float>(1.0 / p.mass),
                                  static_cast<float>(1.0 / q.mass)};
  const int32_t num_tiles = NumTiles(p.row.vocab_size);
  typename T::Tile p_tile;
  typename T::Tile q_tile;
  ForEachTile(team, num_tiles, [&](int32_t t) {
    team.Load(p.row, t, &p_tile);
    team.Load(q.row, t, &q_tile);
    team.Publish(team.Sum(residual, p_tile, q_tile), &masses[t]);
  });
  const auto mass_of = [&](int32_t t) { return masses[t]; };
  const TileChoice choice = ChooseTile(num_tiles, mass_of, coin);
  if (choice.tile < 0) return kNoToken;
  team.Load(p.row, choice.tile, &p_tile);
  team.Load(q.row, choice.tile, &q_tile);
  return ChooseElement(team, choice, residual, p_tile, q_tile);
}

}  // namespace specd
