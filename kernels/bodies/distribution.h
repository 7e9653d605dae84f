// Distribution turns a row of logits into probabilities for the bodies. It has the maximum and the
// mass of every tile, and the survivors of filters.
//
// docs/ALGORITHMS.md, "Numbers". p(i) = weight(i) / mass with weight(i) = 2^((l_i - max) * scale)
// and scale = log2(e) / temperature. No array of V elements is written: each use computes the
// weights again.
#pragma once

#include "kernels/bodies/edited_peaks.h"
#include "kernels/bodies/row.h"

namespace specd {

// The scale at temperature 1.
inline constexpr float kLog2E = 0x1.715476p+0f;

// A row that has been read once. It is valid until the workspace of that read is used again.
struct Distribution {
  Row row;  // with its cut if filters are on
  float scale = 0;
  RowFault fault = RowFault::kNone;  // CONTRACT §6; if it is set, no other field is
  TokenId point = kNoToken;          // all mass is on this id: the lowest +inf, or a forced token
  float max = 0;
  // The survivors' mass; without filters the sum of the tiles' masses. 0 if the row was read ahead
  // for its rough mass alone. MassOf computes the mass then.
  double mass = 0;
  float rough_mass = 0;

  RowStats stats;  // the statistics of the row without its cut

  // True if filters are on. `total` is then the survivors' integer mass (weights relative to max, E
  // = 0), and mass = total * 2^-40. If few elements survive, they are in `list` up to list_cut,
  // whose `last` is a place in the list. Otherwise tallies[t].amount is the integer mass of tile t.
  bool filtered = false;
  bool wide = false;  // the filters were not applied (ReadDistribution); no later field is set
  uint64_t total = 0;
  const Tally* tallies = nullptr;
  ElementList list;
  int32_t num_listed = 0;  // 0: not listed
  Cut list_cut;

  SPECD_INLINE bool bad() const { return fault != RowFault::kNone; }
};

// 2^((x - max) * scale), the weight of an element relative to a maximum. The product is rounded
// before Exp2.
struct WeightFunction {
  float max;
  float scale;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return Exp2((x - max) * scale);
  }
};

struct EqualTo {
  float value;
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return x == value;
  }
};

struct PositivePartFunction {
  template <typename Value>
  SPECD_INLINE auto operator()(Value x) const {
    return PositivePart(x);
  }
};

// The mass of a tile relative to the row's maximum. The tile's own weights are relative to the
// tile's maximum.
struct TileMassFunction {
  WeightFunction weight;  // the row's weights
  template <typename Value>
  SPECD_INLINE auto operator()(Value maximum, Value sum) const {
    // After the last tile the array holds -inf, which is no sum.
    return PositivePart(sum) * weight(maximum);
  }
};

// Loads a short array of floats as a tile.
template <Team T>
SPECD_STEP void LoadArray(T& team, const float* values, int32_t count, typename T::Tile* tile) {
  const RowView view{values, DType::kFloat32, count, {}};
  team.Load(view, 0, kAllSteps, Identity{}, tile);
}
static_assert(NumTiles(kVocabSizeMax) <= kTileSize, "a number for each tile is a short array");

// The largest of the tiles' maxima; NaN if there is a NaN anywhere.
template <Team T>
SPECD_BODY float MaxOfTiles(T& team, const RowStats& stats, int32_t num_tiles) {
  if constexpr (LooksByLane<T>) {
    return team.LargestOf(stats.maxima, num_tiles);
  } else {
    typename T::Tile maxima;
    LoadArray(team, stats.maxima, num_tiles, &maxima);
    return team.Max(Identity{}, maxima);
  }
}

// The mass of a row that was read with sums.
template <Team T>
SPECD_BODY double MassOfTiles(T& team, const RowStats& stats, int32_t num_tiles,
                              const WeightFunction& weight) {
  const TileMassFunction mass{weight};
  if constexpr (LooksByLane<T>) {
    return team.SumTerms(num_tiles,
                         [&](int32_t t) { return mass(stats.maxima[t], stats.sums[t]); });
  } else {
    typename T::Tile maxima;
    typename T::Tile sums;
    LoadArray(team, stats.maxima, num_tiles, &maxima);
    LoadArray(team, stats.sums, num_tiles, &sums);
    return team.SumInOrder(mass, maxima, sums);
  }
}

// The same for a distribution without filters.
template <Team T>
SPECD_INLINE double MassOf(T& team, const Distribution& p) {
  return MassOfTiles(team, p.stats, NumTiles(p.row.view.vocab_size), {p.max, p.scale});
}

// The steps of a tile that hold an element not below `floor`.
SPECD_INLINE uint32_t StepsFrom(const float* peaks_of_row, int32_t tile_index, float floor) {
  const float* peaks = peaks_of_row + tile_index * kStepsPerTile;
  uint32_t steps = 0;
  for (int32_t step = 0; step < kStepsPerTile; ++step) {
    steps |= (peaks[step] >= floor ? 1u : 0u) << step;
  }
  return steps;
}

// The lowest id whose element equals `value`, the largest maximum of a tile. -0 equals +0. The
// answer is kNoToken only if the row changed since its tiles were read.
template <Team T>
SPECD_BODY TokenId LowestIdEqualTo(T& team, const Row& row, const RowStats& stats, float value) {
  typename T::Tile tile;
  const int32_t num_tiles = NumTiles(row.view.vocab_size);
  // If the row changed, groups may disagree and write each other's tiles. Then even this value may
  // be missing.
  int32_t tile_index = -1;
  if constexpr (LooksByLane<T>) {
    const auto is_equal = [value](const float* array) {
      return [value, array](int32_t i) { return array[i] == value; };
    };
    tile_index = team.FirstWhere(num_tiles, is_equal(stats.maxima));
    if (tile_index == num_tiles) return kNoToken;
    if (IsReadAsItLies(row)) {
      const int32_t first = tile_index * kStepsPerTile;
      const int32_t step = team.FirstWhere(kStepsPerTile, is_equal(stats.peaks + first));
      const int32_t id =
          step == kStepsPerTile ? -1 : team.FindInStep(row.view, first + step, EqualTo{value});
      return id < 0 ? kNoToken : id;
    }
  } else {
    LoadArray(team, stats.maxima, num_tiles, &tile);
    tile_index = team.FindFirst(EqualTo{value}, tile);
    if (tile_index < 0) return kNoToken;
  }
  LoadRow(team, row, tile_index, StepsFrom(stats.peaks, tile_index, value), &tile);
  const int32_t element = team.FindFirst(EqualTo{value}, tile);
  return element < 0 ? kNoToken : tile_index * kTileSize + element;
}

// Publishes the results of the first pass for one tile. Only a probe of specd-bench uses other
// weights than WeightFunction.
template <typename Weight = WeightFunction, Team T>
SPECD_HOT void NoteTile(T& team, const typename T::Tile& tile, float scale, bool with_sums,
                        int32_t tile_index, const RowStats& stats) {
  const float max = team.MaxBySteps(tile, stats.peaks + tile_index * kStepsPerTile);
  const bool finite = max - max == 0.0f;
  team.Publish(max, &stats.maxima[tile_index]);
  team.Publish(with_sums && finite ? team.Sum(Weight{max, scale}, tile) : 0.0f,
               &stats.sums[tile_index]);
  if constexpr (SumsRaw<T>) {
    if (team.raw.sums == nullptr) return;
    team.Publish(finite ? team.Sum(Weight{max, team.raw.scale}, tile) : 0.0f,
                 &team.raw.sums[tile_index]);
  }
}

template <Team T>
SPECD_BODY void ReadTile(T& team, const Row& row, float scale, bool with_sums, int32_t tile_index,
                         const RowStats& stats) {
  typename T::Tile tile;
  LoadRow(team, row, tile_index, kAllSteps, &tile);
  NoteTile(team, tile, scale, with_sums, tile_index, stats);
}

template <Team T>
SPECD_INLINE float EndOfPass(T& team, const RowStats& stats, int32_t num_tiles) {
  if constexpr (SumsRaw<T>) team.raw = {};
  team.Sync();
  return MaxOfTiles(team, stats, num_tiles);
}

// One pass: the maximum of every tile and step, and on request the sum of a tile's weights. Returns
// the row's maximum, or NaN if the row holds a NaN.
template <Team T>
SPECD_BODY float ReadTiles(T& team, const Row& row, float scale, bool with_sums,
                           const RowStats& stats) {
  const int32_t num_tiles = NumTiles(row.view.vocab_size);
  const bool plain = IsReadAsItLies(row);
  team.Sync();
  if constexpr (ReadsPeaks<T>) {
    if (!plain && !with_sums && EditedPeaks::CanRead(row)) {
      EditedPeaks peaks(row, team.group());
      for (int32_t t = team.group(); t < num_tiles; t += team.num_groups()) {
        if (!peaks.Note(team, t, stats)) ReadTile(team, row, scale, false, t, stats);
      }
      return EndOfPass(team, stats, num_tiles);
    }
  }
  for (int32_t t = team.group(); t < num_tiles; t += team.num_groups()) {
    if constexpr (ReadsPlainTiles<T>) {
      if (plain) t = team.ReadPlainTiles(row.view, t, scale, with_sums, stats);
      if (t >= num_tiles) break;
    }
    ReadTile(team, row, scale, with_sums, t, stats);
  }
  return EndOfPass(team, stats, num_tiles);
}

// Whether the probabilities as they arrived sum to 1 within 1e-3.
template <Team T>
SPECD_BODY bool SumsToOne(T& team, const RowView& view, const RowStats& stats) {
  const int32_t num_tiles = NumTiles(view.vocab_size);
  typename T::Tile tile;
  ForEachTile(team, num_tiles, [&](int32_t t) {
    team.Load(view, t, kAllSteps, Identity{}, &tile);
    // After the end of the row a tile holds -inf, which is no probability; PositivePart makes it 0.
    team.Publish(team.Sum(PositivePartFunction{}, tile), &stats.sums[t]);
  });
  LoadArray(team, stats.sums, num_tiles, &tile);
  const double sum = team.SumInOrder(Identity{}, tile);
  return sum >= 1.0 - 1e-3 && sum <= 1.0 + 1e-3;
}

template <Team T>
SPECD_INLINE void RemoveDisallowedAndEnds(T& team, const TokenEdit* edits, int32_t num_edits,
                                          int32_t tile_index, typename T::Tile* tile) {
  const EditRun run(team, edits, num_edits, tile_index);
  for (int32_t i = run.begin; i < run.end && run.ElementOf(i) < kTileSize; ++i) {
    if ((edits[i].flags & (kEditDisallowed | kEditEnd)) == 0) continue;
    team.Set(run.ElementOf(i), -kInfinity, tile);
  }
}

// Whether step 1 leaves only EOS and stop ids. If so, min_tokens yields.
template <Team T>
SPECD_BODY bool OnlyEndsAreAllowed(T& team, const Row& row, const RowStats& stats) {
  typename T::Tile tile;
  const int32_t num_tiles = NumTiles(row.view.vocab_size);
  ForEachTile(team, num_tiles, [&](int32_t t) {
    Row masks = row;
    masks.sequence.num_edits = 0;
    masks.place.num_overrides = 0;
    LoadRow(team, masks, t, kAllSteps, &tile);
    RemoveDisallowedAndEnds(team, row.sequence.edits, row.sequence.num_edits, t, &tile);
    RemoveDisallowedAndEnds(team, row.place.overrides, row.place.num_overrides, t, &tile);
    team.Publish(team.Max(Identity{}, tile), &stats.maxima[t]);
  });
  return MaxOfTiles(team, stats, num_tiles) == -kInfinity;
}

// A row's maximum, and whether the row is a distribution.
struct JudgedMax {
  float max = 0;
  RowFault fault = RowFault::kNone;
};
SPECD_INLINE JudgedMax JudgeMax(float max) {
  if (IsNan(max)) return {max, RowFault::kNan};
  return {max, max == -kInfinity ? RowFault::kNoMass : RowFault::kNone};
}

// ReadTiles with the checks of CONTRACT §6 and the yielding of step 3, which may reset the row's
// below_min_tokens. `stats` receives the results of the pass.
template <Team T>
SPECD_BODY JudgedMax ReadAndJudge(T& team, Row* row, float scale, bool with_sums,
                                  const RowWorkspace& workspace, RowStats* stats) {
  const ElementRules& rules = row->view.rules;
  const bool sums_to_one = rules.kind == RowKind::kLogits || rules.renormalise ||
                           SumsToOne(team, row->view, workspace.stats);
  const AheadFacts* const facts = workspace.ahead.facts;
  *stats = facts != nullptr ? workspace.ahead.stats : workspace.stats;
  const float max = facts != nullptr ? facts->max : ReadTiles(team, *row, scale, with_sums, *stats);
  if (!sums_to_one) {
    // A sum takes NaN and negative probabilities as 0, so they are named first. Where min_tokens
    // removed ids, step 3 might have given their mass back.
    const RowFault fault = JudgeMax(max).fault;
    const bool is_sum =
        fault == RowFault::kNone || (fault == RowFault::kNoMass && row->place.below_min_tokens);
    return {-kInfinity, is_sum ? RowFault::kSum : fault};
  }
  // The removed ids were allowed, so step 3 must not yield after their removal.
  const bool may_yield = row->place.below_min_tokens && row->num_removed == 0;
  if (max != -kInfinity || !may_yield) return JudgeMax(max);
  if (!OnlyEndsAreAllowed(team, *row, workspace.stats)) return JudgeMax(max);
  row->place.below_min_tokens = false;
  *stats = workspace.stats;
  return JudgeMax(ReadTiles(team, *row, scale, with_sums, *stats));
}

// The weight of one id relative to the row's maximum. The weight is 0 for ids that did not survive.
// It is also 0 for ids outside the vocabulary, which are never used as an index. REQUIRES:
// !distribution.bad().
SPECD_INLINE float WeightOf(const Distribution& distribution, TokenId id) {
  if (id < 0 || id >= distribution.row.view.vocab_size) return 0.0f;
  if (distribution.point != kNoToken) return id == distribution.point ? 1.0f : 0.0f;
  return WeightFunction{.max = distribution.max,
                        .scale = distribution.scale}(ElementOf(distribution.row, id));
}

}  // namespace specd
