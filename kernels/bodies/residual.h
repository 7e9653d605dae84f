// The residual (P p - q)+: what a rejected token is replaced from.
//
// docs/ALGORITHMS.md, "Chains: token" (P = 1) and "Chains: block". Two rounded products and a
// difference, never fused: where the two rows are identical and P = 1 the residual is exactly 0.
#pragma once

#include "kernels/bodies/sample.h"

namespace specd {

// max(a * w_p - b * w_q, 0) with weights relative to each row's maximum.
struct ResidualFunction {
  WeightFunction p;
  WeightFunction q;
  float a;  // P / mass of p
  float b;  // 1 / mass of q
  template <typename Value>
  SPECD_INLINE auto operator()(Value x, Value y) const {
    return PositivePart(a * p(x) - b * q(y));
  }
};

// A residual whose tiles have been added up. Valid while the rows and `masses` are.
struct Residual {
  const Distribution* p = nullptr;
  const Distribution* q = nullptr;
  double factor = 1;           // P
  double mass = 0;             // sum over v of (P p(v) - q(v))+
  TokenId without = kNoToken;  // q is a point: the residual is p without this id
  bool whole = false;          // q takes nothing that p has, or p is a point: the residual is p
  ResidualFunction function{};
  const float* masses = nullptr;  // of the tiles, where neither of these holds
};

// (P p - q)+ where q has all its mass on one id, which may be outside the vocabulary.
template <Team T>
SPECD_INLINE Residual ResidualOfPoint(const T& team, const Distribution& p, TokenId point,
                                      double factor) {
  Residual residual;
  residual.p = &p;
  residual.factor = factor;
  const double taken = static_cast<double>(team.Agree(WeightOf(p, point)));
  residual.mass = factor * ((p.mass - taken) / p.mass);
  residual.without = point;
  residual.whole = point < 0 || point >= p.row.view.vocab_size;
  return residual;
}

// Reads both rows. `masses` has one entry for each tile. REQUIRES: neither is bad; both rows have
// the same vocabulary.
template <Team T>
SPECD_BODY Residual ReadResidual(T& team, const Distribution& p, const Distribution& q,
                                 double factor, float* masses) {
  if (q.point != kNoToken) return ResidualOfPoint(team, p, q.point, factor);
  Residual residual;
  residual.p = &p;
  residual.q = &q;
  residual.factor = factor;
  if (p.point != kNoToken) {
    // p has one id: the residual is that id, or nothing.
    const double rest = factor - static_cast<double>(team.Agree(WeightOf(q, p.point))) / q.mass;
    residual.mass = rest > 0 ? rest : 0;
    residual.whole = true;
    return residual;
  }
  residual.function = {{p.max, p.scale},
                       {q.max, q.scale},
                       static_cast<float>(factor / p.mass),
                       static_cast<float>(1.0 / q.mass)};
  residual.masses = masses;
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  typename T::Tile p_tile;
  typename T::Tile q_tile;
  ForEachTile(team, num_tiles, [&](int32_t t) {
    LoadRow(team, p.row, t, kAllSteps, &p_tile);
    LoadRow(team, q.row, t, kAllSteps, &q_tile);
    team.Publish(team.Sum(residual.function, p_tile, q_tile), &masses[t]);
  });
  LoadArray(team, masses, num_tiles, &p_tile);
  residual.mass = team.SumInOrder(Identity{}, p_tile);
  return residual;
}

// Draws from a residual, or returns kNoToken where nothing is left.
template <Team T>
SPECD_BODY TokenId SampleResidual(T& team, const Residual& residual, uint64_t coin) {
  if (residual.whole) return residual.mass > 0 ? Sample(team, *residual.p, coin) : kNoToken;
  if (residual.masses == nullptr) return Sample(team, *residual.p, coin, residual.without);
  const Row& p_row = residual.p->row;
  typename T::Tile p_tile;
  typename T::Tile q_tile;
  LoadArray(team, residual.masses, NumTiles(p_row.view.vocab_size), &p_tile);
  const TileChoice choice = ChooseTile(team, PositivePartFunction{}, coin, p_tile);
  if (choice.tile < 0) return kNoToken;
  LoadRow(team, p_row, choice.tile, kAllSteps, &p_tile);
  LoadRow(team, residual.q->row, choice.tile, kAllSteps, &q_tile);
  return ChooseElement(team, choice, residual.function, p_tile, q_tile);
}

}  // namespace specd
