// The draw: inverse CDF in 64-bit integers, over tiles and then inside one tile.
//
// docs/ALGORITHMS.md, "Drawing". Integer prefixes are exact and associative, so any processor may
// form them in parallel and finds the same id. One coin decides both levels; ids are in ascending
// order, so token i owns an interval of coins whose length is p(i) up to the stated bound.
#pragma once

#include "kernels/bodies/distribution.h"
#include "kernels/core/philox.h"

namespace specd {

// A tile chosen by a coin, and where in the tile's mass the coin points: `remainder` of `weight`.
struct TileChoice {
  int32_t tile = -1;  // -1: no tile has mass
  uint64_t remainder = 0;
  uint64_t weight = 0;
};

// Chooses among tiles in proportion to mass_of(t) >= 0.
template <typename MassOf>
SPECD_BODY TileChoice ChooseTile(int32_t num_tiles, const MassOf& mass_of, uint64_t coin) {
  float largest = 0;
  for (int32_t t = 0; t < num_tiles; ++t) {
    const float mass = mass_of(t);
    if (mass > largest) largest = mass;
  }
  if (largest == 0) return {};
  const int32_t exponent = ExponentOf(largest);
  uint64_t total = 0;
  for (int32_t t = 0; t < num_tiles; ++t) total += IntegerWeight(mass_of(t), exponent);

  // coin < 2^53, so the remainder starts below the total and falls into some tile.
  uint64_t remainder = MulDiv(coin, total, uint64_t{1} << kCoinBits);
  for (int32_t t = 0; t < num_tiles; ++t) {
    const uint64_t weight = IntegerWeight(mass_of(t), exponent);
    if (remainder < weight) return {t, remainder, weight};
    remainder -= weight;
  }
  return {};
}

// Chooses an element of the chosen tile in proportion to `weight`, and returns its id; kNoToken if
// the tile's mass has gone, which only a row that changes while it is read can cause.
template <Team T, typename Weight, typename... Tiles>
SPECD_BODY TokenId ChooseElement(T& team, const TileChoice& choice, const Weight& weight,
                                 const Tiles&... tiles) {
  const int32_t exponent = ExponentOf(team.Max(weight, tiles...));
  const uint64_t total = team.SumWeights(weight, exponent, tiles...);
  // The remainder is below the tile's weight, so the threshold is below the total.
  const uint64_t threshold = MulDiv(choice.remainder, total, choice.weight);
  const int32_t element = team.FindPrefix(weight, exponent, threshold, tiles...);
  return element < 0 ? kNoToken : choice.tile * kTileSize + element;
}

// Draws from p. There is always something to draw in a row that holds still while it is read; in
// one that does not, the answer may be kNoToken or any other id. REQUIRES: !p.bad.
template <Team T>
SPECD_BODY TokenId Sample(T& team, const Distribution& p, uint64_t coin) {
  if (p.point != kNoToken) return p.point;
  const auto mass_of = [&](int32_t t) { return TileMass(p.tiles[t], p.max, p.scale); };
  const TileChoice choice = ChooseTile(NumTiles(p.row.vocab_size), mass_of, coin);
  if (choice.tile < 0) return kNoToken;
  typename T::Tile tile;
  team.Load(p.row, choice.tile, &tile);
  return ChooseElement(team, choice, WeightFunction{p.tiles[choice.tile].max, p.scale}, tile);
}

// Draws from p without one id, or returns kNoToken where nothing else has mass. REQUIRES: !p.bad
// and `removed` is inside the vocabulary.
template <Team T>
SPECD_BODY TokenId SampleWithout(T& team, const Distribution& p, TokenId removed, uint64_t coin) {
  if (p.point != kNoToken) return p.point == removed ? kNoToken : p.point;
  const int32_t removed_tile = removed / kTileSize;
  const int32_t removed_element = removed % kTileSize;
  const TileStats& stats = p.tiles[removed_tile];
  typename T::Tile tile;
  float rest = 0;
  if (stats.max > -kInfinity) {
    team.Load(p.row, removed_tile, &tile);
    team.Remove(removed_element, &tile);
    const float sum = team.Sum(WeightFunction{stats.max, p.scale}, tile);
    rest = TileMass(TileStats{stats.max, sum}, p.max, p.scale);
  }
  const auto mass_of = [&](int32_t t) {
    return t == removed_tile ? rest : TileMass(p.tiles[t], p.max, p.scale);
  };
  const TileChoice choice = ChooseTile(NumTiles(p.row.vocab_size), mass_of, coin);
  if (choice.tile < 0) return kNoToken;
  team.Load(p.row, choice.tile, &tile);
  if (choice.tile == removed_tile) team.Remove(removed_element, &tile);
  return ChooseElement(team, choice, WeightFunction{p.tiles[choice.tile].max, p.scale}, tile);
}

}  // namespace specd
