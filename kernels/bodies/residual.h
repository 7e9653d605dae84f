// Residual is the distribution (a p - c q)+ from which a rejected token is replaced for the sampled
// methods.
//
// docs/ALGORITHMS.md, "Chains: token" (a = c = 1), "Chains: block" (a = P, c = 1) and "Trees". The
// residual is two rounded products and a difference, never fused. If the two rows are identical and
// a = c, the residual is therefore exactly 0.
#pragma once

#include "kernels/bodies/sample.h"

namespace specd {

// max(a * w_p - b * w_q, 0) with weights relative to each row's maximum.
struct ResidualFunction {
  WeightFunction p;
  WeightFunction q;
  float a;  // a / mass of p
  float b;  // c / mass of q
  template <typename Value>
  SPECD_INLINE auto operator()(Value x, Value y) const {
    return PositivePart(a * p(x) - b * q(y));
  }
};

// More than rounding adds to a sum of (a p - c q)+, as a share of a (ALGORITHMS.md, "Trees").
inline constexpr double kBoundSlack = 0x1p-10;

// a and c.
struct ResidualFactors {
  double p = 1;
  double q = 1;
};

// A residual whose tiles have been summed. Valid while the rows and `masses` are.
struct Residual {
  const Distribution* p = nullptr;
  const Distribution* q = nullptr;
  double mass = 0;             // sum over v of (a p(v) - c q(v))+
  TokenId without = kNoToken;  // q is a point: the residual is p without this id
  bool whole = false;          // q takes no mass of p, or p is a point: the residual is p
  ResidualFunction function{};
  const float* masses = nullptr;  // the tiles' masses, if neither of these is set
};

// (a p - c q)+ if q has all its mass on one id, which may be outside the vocabulary. REQUIRES: the
// difference at that id is not above 0.
template <Team T>
SPECD_INLINE Residual ResidualOfPoint(const T& team, const Distribution& p, TokenId point,
                                      double factor) {
  Residual residual;
  residual.p = &p;
  const double taken = static_cast<double>(team.Agree(WeightOf(p, point)));
  residual.mass = factor * ((p.mass - taken) / p.mass);
  residual.without = point;
  residual.whole = point < 0 || point >= p.row.view.vocab_size;
  return residual;
}

// (a p - c q)+ if p has all its mass on one id: the residual is that id, or nothing.
template <Team T>
SPECD_INLINE Residual ResidualAtPoint(const T& team, const Distribution& p, const Distribution& q,
                                      const ResidualFactors& factors) {
  Residual residual;
  residual.p = &p;
  residual.q = &q;
  const double taken = factors.q * (static_cast<double>(team.Agree(WeightOf(q, p.point))) / q.mass);
  const double rest = factors.p - taken;
  residual.mass = rest > 0 ? rest : 0;
  residual.whole = true;
  return residual;
}

// Whether a residual takes a pass over both rows.
SPECD_INLINE bool TakesPass(const Distribution& p, const Distribution& q) {
  return p.point == kNoToken && q.point == kNoToken;
}
// REQUIRES: the residual takes no pass; neither row is bad.
template <Team T>
SPECD_INLINE Residual ResidualWithoutPass(const T& team, const Distribution& p,
                                          const Distribution& q, const ResidualFactors& factors) {
  return q.point != kNoToken ? ResidualOfPoint(team, p, q.point, factors.p)
                             : ResidualAtPoint(team, p, q, factors);
}

SPECD_INLINE ResidualFunction FunctionOfResidual(const WeightFunction& p, double p_mass,
                                                 const WeightFunction& q, double q_mass,
                                                 const ResidualFactors& factors) {
  return {p, q, static_cast<float>(factors.p / p_mass), static_cast<float>(factors.q / q_mass)};
}

// The steps of a tile that the pass has to read. In the other steps the cut makes p 0, so the
// residual is 0 for any q. `peaks` belong to p's row without its cut; null: unknown.
SPECD_INLINE uint32_t StepsOfResidual(const float* peaks, bool has_cut, float cut_value,
                                      int32_t tile_index) {
  return has_cut && peaks != nullptr ? StepsFrom(peaks, tile_index, cut_value) : kAllSteps;
}

// The residual before its pass. `masses` has one entry for each tile. REQUIRES: the residual takes
// a pass; neither row is bad; both rows have the same vocabulary.
SPECD_INLINE Residual BeginResidual(const Distribution& p, const Distribution& q,
                                    const ResidualFactors& factors, float* masses) {
  Residual residual;
  residual.p = &p;
  residual.q = &q;
  residual.function =
      FunctionOfResidual({p.max, p.scale}, p.mass, {q.max, q.scale}, q.mass, factors);
  residual.masses = masses;
  return residual;
}

// Publishes the result of the pass for one tile.
template <Team T>
SPECD_BODY void NoteResidualTile(T& team, const Residual& residual, int32_t tile_index,
                                 float* masses) {
  const Distribution& p = *residual.p;
  const uint32_t steps = StepsOfResidual(p.stats.peaks, p.row.has_cut, p.row.cut.value, tile_index);
  if (steps == 0) return team.Publish(0.0f, &masses[tile_index]);
  const Row& q_row = residual.q->row;
  if constexpr (SumsPlainRows<T>) {
    float sum = 0;
    if (IsReadAsItLies(p.row) && IsReadAsItLies(q_row) &&
        team.SumPlain(residual.function, p.row.view, q_row.view, tile_index, &sum)) {
      return team.Publish(sum, &masses[tile_index]);
    }
  }
  typename T::Tile p_tile;
  typename T::Tile q_tile;
  LoadRow(team, p.row, tile_index, steps, &p_tile);
  LoadRow(team, q_row, tile_index, steps, &q_tile);
  team.Publish(team.Sum(residual.function, p_tile, q_tile), &masses[tile_index]);
}

// Sums the tiles after the pass.
template <Team T>
SPECD_BODY void EndResidual(T& team, Residual* residual) {
  const int32_t num_tiles = NumTiles(residual->p->row.view.vocab_size);
  if constexpr (LooksByLane<T>) {
    residual->mass = team.SumTerms(num_tiles, [&](int32_t t) { return residual->masses[t]; });
  } else {
    typename T::Tile tile;
    LoadArray(team, residual->masses, num_tiles, &tile);
    residual->mass = team.SumInOrder(Identity{}, tile);
  }
}

// Computes the whole residual, with or without a pass. A draw does not need the mass of a residual
// that took a pass. REQUIRES: neither row is bad; both rows have the same vocabulary.
template <bool kWithMass = true, Team T>
SPECD_BODY Residual ReadResidual(T& team, const Distribution& p, const Distribution& q,
                                 const ResidualFactors& factors, float* masses) {
  if (!TakesPass(p, q)) return ResidualWithoutPass(team, p, q, factors);
  Residual residual = BeginResidual(p, q, factors, masses);
  ForEachTile(team, NumTiles(p.row.view.vocab_size),
              [&](int32_t t) { NoteResidualTile(team, residual, t, masses); });
  if constexpr (kWithMass) EndResidual(team, &residual);
  return residual;
}

// Draws from a residual, or returns kNoToken if the residual has no mass.
template <Team T>
SPECD_BODY TokenId SampleResidual(T& team, const Residual& residual, uint64_t coin) {
  if (residual.whole) return residual.mass > 0 ? Sample(team, *residual.p, coin) : kNoToken;
  if (residual.masses == nullptr) return Sample(team, *residual.p, coin, residual.without);
  const Row& p_row = residual.p->row;
  const int32_t num_tiles = NumTiles(p_row.view.vocab_size);
  typename T::Tile p_tile;
  typename T::Tile q_tile;
  TileChoice choice;
  if constexpr (LooksByLane<T>) {
    choice = ChooseTileByLane(team, num_tiles, coin,
                              [&](int32_t t) { return PositivePart(residual.masses[t]); });
  } else {
    LoadArray(team, residual.masses, num_tiles, &p_tile);
    choice = ChooseTile(team, PositivePartFunction{}, coin, p_tile);
  }
  if (choice.tile < 0) return kNoToken;
  LoadNear(team, p_row, residual.q->row, choice.tile, &p_tile, &q_tile);
  return ChooseElement(team, choice, residual.function, p_tile, q_tile);
}

}  // namespace specd
