// MeasureTiles counts or sums the elements of a row for CutSearch, and ListBetween lists some.
//
// Both are passes over a row whose tiles were read. MassesBeside turns the masses above one pivot
// into those above a cut near it, without a pass over the row.
#pragma once

#include "kernels/bodies/cut_functions.h"
#include "kernels/bodies/peaks.h"

namespace specd {

// Loads the elements of a list as a tile.
template <Team T>
SPECD_INLINE void LoadList(T& team, const ElementList& list, int32_t num_listed,
                           typename T::Tile* tile) {
  LoadArray(team, list.values, num_listed, tile);
}

// Whether a cut of the row keeps an element of its list.
SPECD_INLINE bool IsKept(const ElementList& list, int32_t place, const Cut& cut) {
  const float x = list.values[place];
  return x > cut.value || (x == cut.value && list.ids[place] <= cut.last);
}

// The number of ids that are not above `id`.
SPECD_INLINE int32_t NumUpTo(const ElementList& list, int32_t num_listed, TokenId id) {
  int32_t begin = 0;
  int32_t end = num_listed;
  while (begin < end) {
    const int32_t middle = begin + (end - begin) / 2;
    if (list.ids[middle] <= id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// The number of elements of a tile from a pivot on, and their amount: their number or their mass.
template <Team T>
SPECD_BODY Tally MeasureFrom(T& team, const typename T::Tile& tile, float pivot, bool by_weight,
                             const WeightFunction& weight) {
  Tally tally;
  tally.count = static_cast<uint64_t>(team.Count(AtLeast{pivot}, tile));
  tally.amount = by_weight ? team.SumWeights(WeightAtLeast{weight, pivot}, 0, tile) : tally.count;
  return tally;
}

// The mass of the listed elements that a cut of the row keeps.
template <Team T>
SPECD_BODY uint64_t MassOfList(T& team, const ElementList& list, int32_t num_listed,
                               const WeightFunction& weight, const Cut& cut) {
  if constexpr (LooksByLane<T>) {
    return team.SumOfTerms(num_listed, [&](int32_t i) {
      return IsKept(list, i, cut) ? IntegerWeight(weight(list.values[i]), 0) : uint64_t{0};
    });
  } else {
    typename T::Tile tile;
    LoadList(team, list, num_listed, &tile);
    team.Keep(cut.value, NumUpTo(list, num_listed, cut.last) - 1, &tile);
    return team.SumWeights(weight, 0, tile);
  }
}

// MeasureFrom for a list.
template <Team T>
SPECD_BODY Tally MeasureListFrom(T& team, const ElementList& list, int32_t num_listed, float pivot,
                                 bool by_weight, const WeightFunction& weight) {
  if constexpr (LooksByLane<T>) {
    const auto count = static_cast<uint64_t>(
        team.CountWhere(num_listed, [&](int32_t i) { return list.values[i] >= pivot; }));
    if (!by_weight) return {count, count};
    return {count, MassOfList(team, list, num_listed, weight, Cut{pivot, kVocabSizeMax})};
  } else {
    typename T::Tile tile;
    LoadList(team, list, num_listed, &tile);
    return MeasureFrom(team, tile, pivot, by_weight, weight);
  }
}

// Runs `measure(tile)` over the steps that hold an element not below `floor`, and adds the
// results. Each tile's result is left in `tallies`.
template <Team T, typename MeasureOne>
SPECD_HD Tally MeasureTiles(T& team, const Distribution& p, const Row& row, float floor,
                            Tally* tallies, const MeasureOne& measure) {
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  typename T::Tile tile;
  ForEachTile(team, num_tiles, [&](int32_t t) {
    Tally tally;
    if (p.stats.maxima[t] >= floor) {
      LoadRow(team, row, t, StepsFrom(p, t, floor), &tile);
      tally = measure(tile);
    }
    team.Publish(tally, &tallies[t]);
  });
  Tally sum;
  for (int32_t t = 0; t < num_tiles; ++t) {
    sum.count += tallies[t].count;
    sum.amount += tallies[t].amount;
  }
  return sum;
}

// Lists the elements of a bracket and returns their number, or -1 if there are too many. The
// amounts in workspace.tallies stay as they are. A group has to know the numbers of all tiles
// before its own. Unless the tallies have them (is_counted), several groups look at the row twice.
template <Team T>
SPECD_BODY int32_t ListBetween(T& team, const Distribution& p, const Between& bracket,
                               bool is_counted, const RowWorkspace& workspace) {
  const ElementList& list = workspace.list;
  Tally* const tallies = workspace.tallies;
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  typename T::Tile tile;
  const auto load = [&](int32_t t) {
    if (!(p.stats.maxima[t] >= bracket.low)) return false;
    LoadRow(team, p.row, t, StepsFrom(p, t, bracket.low), &tile);
    return true;
  };
  const auto pack = [&](int32_t t, int32_t place) {
    return team.Pack(bracket, tile, t * kTileSize, list.values + place, list.ids + place);
  };
  int32_t place = 0;
  if (team.num_groups() == 1) {
    team.Sync();
    for (int32_t t = 0; t < num_tiles && place <= kListMax; ++t) {
      if (load(t)) place += pack(t, place);
    }
    team.Sync();
    return place <= kListMax ? place : -1;
  }
  if (!is_counted) {
    ForEachTile(team, num_tiles, [&](int32_t t) {
      const auto count = static_cast<uint64_t>(load(t) ? team.Count(bracket, tile) : 0);
      team.Publish(count, &tallies[t].count);
    });
  }
  uint64_t num_listed = 0;
  for (int32_t t = 0; t < num_tiles; ++t) num_listed += tallies[t].count;
  if (num_listed > kListMax) return -1;
  int32_t next = 0;  // the first tile whose place is not known yet
  ForEachTile(team, num_tiles, [&](int32_t t) {
    for (; next < t; ++next) place += static_cast<int32_t>(tallies[next].count);
    // If the row changed, groups may disagree and counts may not fit each other. Such counts end
    // here.
    if (tallies[t].count > 0 && place <= kListMax && load(t)) pack(t, place);
  });
  return static_cast<int32_t>(num_listed);
}

// Masses of tiles that are known at one end of a listed bracket.
struct MassesAtEnd {
  bool known = false;
  bool is_low = false;  // at the low end, so they hold the listed elements
};

// Makes the masses those of the elements that a cut inside the listed bracket keeps, and returns
// their sum. `in_list` is the cut with a place in the list.
template <Team T>
SPECD_BODY uint64_t MassesBeside(T& team, const Distribution& p, const RowWorkspace& workspace,
                                 int32_t num_listed, const Cut& in_list, bool is_low) {
  const ElementList& list = workspace.list;
  const WeightFunction weight{p.max, p.scale};
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  ForEachTile(team, num_tiles, [&](int32_t t) {
    uint64_t change = 0;
    // A tile has a few of the listed elements.
    const TokenId end = (t + 1) * kTileSize;
    for (int32_t i = NumUpTo(list, num_listed, t * kTileSize - 1); i < num_listed; ++i) {
      if (list.ids[i] >= end) break;
      const float x = list.values[i];
      const bool is_kept = x > in_list.value || (x == in_list.value && i <= in_list.last);
      const uint64_t one = IntegerWeight(weight(x), 0);
      change += one & (uint64_t{0} - (is_kept != is_low ? 1 : 0));
    }
    team.Replace(&workspace.tallies[t], [is_low, change](const Tally& tally) {
      return Tally{0, is_low ? tally.amount - change : tally.amount + change};
    });
  });
  uint64_t sum = 0;
  for (int32_t t = 0; t < num_tiles; ++t) sum += workspace.tallies[t].amount;
  return sum;
}

}  // namespace specd
