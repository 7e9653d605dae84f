// Sample draws an id from a distribution for every method: inverse CDF in 64-bit integers, over
// tiles and then inside one tile.
//
// docs/ALGORITHMS.md, "Drawing". Integer prefixes are exact and associative, so any processor may
// form them in parallel and finds the same id. One coin decides both levels. Ids are in ascending
// order, so token i owns an interval of coins whose length is p(i) up to the stated bound.
#pragma once

#include "kernels/bodies/truncate.h"
#include "kernels/core/philox.h"

namespace specd {

// A tile chosen by a coin, and the coin's point in the tile's mass: `remainder` of `weight`.
struct TileChoice {
  int32_t tile = -1;  // -1: no tile has mass
  uint64_t remainder = 0;
  uint64_t weight = 0;
};

// Keeps the integers of a draw, if the team keeps any.
template <Team T>
SPECD_INLINE void NoteScope(T& team, uint64_t total, uint64_t before, uint64_t weight) {
  if constexpr (KeepsDraws<T>) team.draw = {.total = total, .before = before, .weight = weight};
}
template <Team T>
SPECD_INLINE void NoteElement(T& team, uint64_t total, const PrefixPlace& place) {
  if constexpr (KeepsDraws<T>) {
    team.draw.tile_total = total;
    team.draw.tile_before = place.before;
    team.draw.tile_weight = place.weight;
  }
}

// Chooses a tile in proportion to its mass. mass(x...) >= 0 takes the numbers of each tile.
template <Team T, typename Mass, typename... Arrays>
SPECD_BODY TileChoice ChooseTile(T& team, const Mass& mass, uint64_t coin,
                                 const Arrays&... arrays) {
  const float largest = team.Max(mass, arrays...);
  if (!(largest > 0.0f)) return {};
  const int32_t exponent = ExponentOf(largest);
  const uint64_t total = team.SumWeights(mass, exponent, arrays...);
  // coin < 2^53, so the threshold is below the total and lies in some tile.
  const uint64_t threshold = MulDiv(coin, total, uint64_t{1} << kCoinBits);
  const PrefixPlace place = team.FindPrefix(mass, exponent, threshold, arrays...);
  NoteScope(team, total, place.before, place.weight);
  return {place.element, threshold - place.before, place.weight};
}

// The same with masses that each lane finds for itself.
template <Team T, typename MassOf>
SPECD_INLINE TileChoice ChooseTileByLane(T& team, int32_t num_tiles, uint64_t coin,
                                         const MassOf& mass_of) {
  uint64_t total = 0;
  uint64_t threshold = 0;
  const auto threshold_of = [&](uint64_t sum) {
    total = sum;
    return threshold = MulDiv(coin, total, uint64_t{1} << kCoinBits);
  };
  const PrefixPlace place = team.DrawTerm(num_tiles, mass_of, threshold_of);
  if (place.element < 0) return {};
  NoteScope(team, total, place.before, place.weight);
  return {place.element, threshold - place.before, place.weight};
}

// LoadRow for a tile that ChooseElement takes next. It stays in registers if a team has any.
template <Team T>
SPECD_INLINE void LoadNear(T& team, const Row& row, int32_t tile_index, typename T::Tile* tile) {
  if constexpr (LooksByLane<T>) {
    if (IsReadAsItLies(row) && team.LoadByWord(row.view, tile_index, tile)) return;
    typename T::Tile loaded;
    LoadRow(team, row, tile_index, kAllSteps, &loaded);
    *tile = loaded;
  } else {
    LoadRow(team, row, tile_index, kAllSteps, tile);
  }
}
// The same for two rows.
template <Team T>
SPECD_INLINE void LoadNear(T& team, const Row& p, const Row& q, int32_t tile_index,
                           typename T::Tile* p_tile, typename T::Tile* q_tile) {
  if constexpr (LooksByLane<T>) {
    if (IsReadAsItLies(p) && IsReadAsItLies(q) &&
        team.LoadByWord(p.view, q.view, tile_index, p_tile, q_tile)) {
      return;
    }
    typename T::Tile loaded;
    LoadRow(team, p, tile_index, kAllSteps, &loaded);
    *p_tile = loaded;
    LoadRow(team, q, tile_index, kAllSteps, &loaded);
    *q_tile = loaded;
  } else {
    LoadRow(team, p, tile_index, kAllSteps, p_tile);
    LoadRow(team, q, tile_index, kAllSteps, q_tile);
  }
}

// Chooses an element of the chosen tile in proportion to `weight`, and returns its id. If the row
// changed while it was read, the tile's mass may be gone; then the answer is kNoToken.
template <Team T, typename Weight, typename... Tiles>
SPECD_INLINE TokenId ChooseElement(T& team, const TileChoice& choice, const Weight& weight,
                                   const Tiles&... tiles) {
  uint64_t total = 0;
  // The remainder is below the tile's weight, so the threshold is below the total.
  const auto threshold_of = [&](uint64_t sum) {
    total = sum;
    return MulDivOfWeights(choice.remainder, sum, choice.weight);
  };
  PrefixPlace place;
  if constexpr (LooksByLane<T>) {
    place = team.Draw(weight, threshold_of, tiles...);
  } else {
    const int32_t exponent = ExponentOf(team.Max(weight, tiles...));
    const uint64_t threshold = threshold_of(team.SumWeights(weight, exponent, tiles...));
    place = team.FindPrefix(weight, exponent, threshold, tiles...);
  }
  NoteElement(team, total, place);
  return place.element < 0 ? kNoToken : choice.tile * kTileSize + place.element;
}

// Set() of a tile that LoadRow has filled, and that lies in memory.
template <Team T>
SPECD_INLINE void SetInMemory(T& team, int32_t element, float value, typename T::Tile* tile) {
  if constexpr (LooksByLane<T>) {
    team.SetInMemory(element, value, tile);
  } else {
    team.Set(element, value, tile);
  }
}

// Draws without filters. If a tile's maximum is -inf, its statistics show that it has no weights.
template <Team T>
SPECD_BODY TokenId SampleTiles(T& team, const Distribution& p, uint64_t coin, TokenId removed) {
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  const int32_t removed_tile = removed == kNoToken ? -1 : removed / kTileSize;
  const int32_t removed_element = removed % kTileSize;
  typename T::Tile tile;
  const bool cuts = removed_tile >= 0 && p.stats.maxima[removed_tile] > -kInfinity;
  float rest = 0;  // of the removed id's tile
  if (cuts) {
    LoadRow(team, p.row, removed_tile, kAllSteps, &tile);
    SetInMemory(team, removed_element, -kInfinity, &tile);
    rest = team.Sum(WeightFunction{p.stats.maxima[removed_tile], p.scale}, tile);
  }
  const TileMassFunction mass{{p.max, p.scale}};
  TileChoice choice;
  if constexpr (LooksByLane<T>) {
    choice = ChooseTileByLane(team, num_tiles, coin, [&](int32_t t) {
      return mass(p.stats.maxima[t], cuts && t == removed_tile ? rest : p.stats.sums[t]);
    });
  } else {
    typename T::Tile maxima;
    typename T::Tile sums;
    LoadArray(team, p.stats.maxima, num_tiles, &maxima);
    LoadArray(team, p.stats.sums, num_tiles, &sums);
    if (cuts) team.Set(removed_tile, rest, &sums);
    choice = ChooseTile(team, mass, coin, maxima, sums);
  }
  if (choice.tile < 0) return kNoToken;
  const WeightFunction weight{.max = p.stats.maxima[choice.tile], .scale = p.scale};
  typename T::Tile chosen;
  LoadNear(team, p.row, choice.tile, &chosen);
  if (choice.tile == removed_tile) team.Set(removed_element, -kInfinity, &chosen);
  return ChooseElement(team, choice, weight, chosen);
}

// Draws among the survivors of filters. All integer weights are relative to the row's maximum. The
// remainder therefore applies to a tile unchanged, and a list gives the same id as the tiles.
template <Team T>
SPECD_BODY TokenId SampleSurvivors(T& team, const Distribution& p, uint64_t coin, TokenId removed) {
  const WeightFunction weight{p.max, p.scale};
  const uint64_t gone =
      removed == kNoToken ? 0 : IntegerWeight(team.Agree(WeightOf(p, removed)), 0);
  if (p.total <= gone) return kNoToken;
  const uint64_t total = p.total - gone;
  uint64_t remainder = MulDiv(coin, total, uint64_t{1} << kCoinBits);
  const uint64_t threshold = remainder;
  typename T::Tile tile;
  if (p.num_listed > 0) {
    PrefixPlace found;
    if constexpr (LooksByLane<T>) {
      const auto weight_of = [&](int32_t i) {
        const bool is_left = IsKept(p.list, i, p.row.cut) && p.list.ids[i] != removed;
        return is_left ? IntegerWeight(weight(p.list.values[i]), 0) : uint64_t{0};
      };
      found = team.FindTerm(p.num_listed, weight_of, remainder);
    } else {
      LoadList(team, p.list, p.num_listed, &tile);
      team.Keep(p.list_cut.value, p.list_cut.last, &tile);
      const int32_t place = NumUpTo(p.list, p.num_listed, removed) - 1;
      if (place >= 0 && p.list.ids[place] == removed) team.Set(place, -kInfinity, &tile);
      found = team.FindPrefix(weight, 0, remainder, tile);
    }
    NoteScope(team, total, found.before, found.weight);
    return found.element < 0 ? kNoToken : p.list.ids[found.element];
  }
  for (int32_t t = 0; t < NumTiles(p.row.view.vocab_size); ++t) {
    const bool has_removed = removed != kNoToken && t == removed / kTileSize;
    const uint64_t mass = p.tallies[t].amount - (has_removed ? gone : 0);
    if (remainder >= mass) {
      remainder -= mass;
      continue;
    }
    LoadRow(team, p.row, t, StepsFrom(p, t, p.row.cut.value), &tile);
    if (has_removed) team.Set(removed % kTileSize, -kInfinity, &tile);
    const PrefixPlace found = team.FindPrefix(weight, 0, remainder, tile);
    NoteScope(team, total, threshold - remainder + found.before, found.weight);
    return found.element < 0 ? kNoToken : t * kTileSize + found.element;
  }
  return kNoToken;
}

// Draws from p, or from p without one id; kNoToken if no other id has mass. If the row does not
// change while it is read, a draw from p itself always finds an id. If the row changes, the answer
// may be kNoToken or any other id. REQUIRES: !p.bad(), and `removed` is kNoToken or inside the
// vocabulary.
template <Team T>
SPECD_BODY TokenId Sample(T& team, const Distribution& p, uint64_t coin,
                          TokenId removed = kNoToken) {
  if (p.point != kNoToken) {
    NoteScope(team, 0, 0, 0);
    return p.point == removed ? kNoToken : p.point;
  }
  return p.filtered ? SampleSurvivors(team, p, coin, removed) : SampleTiles(team, p, coin, removed);
}

}  // namespace specd
