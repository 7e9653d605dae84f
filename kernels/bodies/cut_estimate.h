// EstimateCut estimates from a sample of a row where CutSearch will end.
//
// Use it if most of a row is above the value that a search would try first. The estimate decides
// how many passes the search takes, and never its answer. It takes two looks. The first one keeps
// kStepsPerTile steps and seeks the cut among them. The second one sums the weights below that
// value over one step of every tile, which corrects it.
#pragma once

#include "kernels/bodies/cut_functions.h"
#include "kernels/bodies/peaks.h"

namespace specd {

// The elements that a cut keeps: the fewest whose number, or integer mass, reaches `need`.
struct CutGoal {
  uint64_t need = 0;
  bool by_weight = false;
  float first = 0;  // the value to try first
  // by_weight: the mass of all elements that are not below `floor`; 0: unknown.
  uint64_t all = 0;
  float floor = kLowestFloat;
};

// The value of the answer if elements and amounts were spread evenly in a bracket, and a margin
// above or below it. If the guess is right, two such steps leave a bracket that fits into a list.
// The tallies are those from the bracket's ends on.
SPECD_INLINE float GuessBetween(const Between& bracket, const Tally& at_low, const Tally& at_high,
                                uint64_t need, bool above) {
  const auto width = static_cast<double>(bracket.high) - static_cast<double>(bracket.low);
  const auto count = static_cast<double>(at_low.count - at_high.count);
  const auto share = static_cast<double>(need - at_high.amount) /
                     static_cast<double>(at_low.amount - at_high.amount);
  const double margin = width * (kListMax / 3) / count;
  const double answer = static_cast<double>(bracket.high) - share * width;
  return static_cast<float>(above ? answer + margin : answer - margin);
}

struct CutEstimate {
  float value = 0;
  double density = 0;  // elements for each unit of value around it; 0: no estimate
};

// Smaller rows are searched as they are.
inline constexpr int32_t kSampledTilesMin = 8;

// Whether half of the steps hold elements well above `first`, so probably most elements are above
// it.
template <Team T>
SPECD_BODY bool IsWide(T& team, const Distribution& p, float first) {
  const int32_t vocab_size = p.row.view.vocab_size;
  // A mask may leave no element of a step.
  if (vocab_size < kSampledTilesMin * kTileSize || p.row.mask != nullptr) return false;
  if (p.row.sequence.allowed != nullptr) return false;
  const int32_t num_steps = NumTiles(vocab_size) * kStepsPerTile;
  const RowView peaks{p.stats.peaks, DType::kFloat32, num_steps, {}};
  const AtLeast function{first + 2.0f / p.scale};
  typename T::Tile tile;
  int32_t num_wide = 0;
  for (int32_t t = 0; t < NumTiles(num_steps); ++t) {
    team.Load(peaks, t, kAllSteps, Identity{}, &tile);
    num_wide += team.Count(function, tile);
  }
  return num_wide > num_steps / 2;
}

// The sum of the weights of [floor, value) over one step of every tile, for each element looked at.
template <Team T>
SPECD_BODY double TailOfSteps(T& team, const Distribution& p, const Between& tail, Tally* tallies) {
  const int32_t num_tiles = NumTiles(p.row.view.vocab_size);
  const WeightBetween weight{{p.max, p.scale}, tail};
  typename T::Tile tile;
  ForEachTile(team, num_tiles, [&](int32_t t) {
    const int32_t step = t % kStepsPerTile;
    const int32_t rest = p.row.view.vocab_size - t * kTileSize - step * kLanes;
    Tally tally;
    if (rest >= kLanes) {
      LoadRow(team, p.row, t, 1u << step, &tile);
      tally = {kLanes, team.SumWeights(weight, 0, tile)};
    }
    team.Publish(tally, &tallies[t]);
  });
  Tally sum;
  for (int32_t t = 0; t < num_tiles; ++t) {
    sum.count += tallies[t].count;
    sum.amount += tallies[t].amount;
  }
  return static_cast<double>(sum.amount) * 0x1p-40 / static_cast<double>(sum.count);
}

// The elements of kStepsPerTile full steps, spread over the row, and their weights.
template <Team T>
class RowSample {
 public:
  SPECD_HD RowSample(T& team, const Distribution& p, const ElementList& list, float floor)
      : team_(team), floor_(floor) {
    const int32_t num_steps = p.row.view.vocab_size / kLanes;
    ForEachTile(team, kStepsPerTile, [&](int32_t i) {
      const int32_t step = (2 * i + 1) * num_steps / (2 * kStepsPerTile);
      LoadRow(team, p.row, step / kStepsPerTile, 1u << (step % kStepsPerTile), &values_);
      team.Pack(AtLeast{-kInfinity}, values_, 0, list.values + i * kLanes, list.ids + i * kLanes);
    });
    const RowView view{list.values, DType::kFloat32, kTileSize, {}};
    team.Load(view, 0, kAllSteps, Identity{}, &values_);
    team.Load(view, 0, kAllSteps, WeightFunction{p.max, p.scale}, &weights_);
  }

  // The value below which the weights from floor on sum to `sum`, between two values.
  SPECD_BODY float Seek(float sum, float low, float high, int32_t num_halvings) {
    for (int32_t i = 0; i < num_halvings; ++i) {
      const float middle = low + (high - low) * 0.5f;
      (SumBelow(middle) <= sum ? low : high) = middle;
    }
    return low;
  }

  SPECD_BODY float SumBelow(float value) {
    return team_.Sum(KnownWeightBetween{{floor_, value}}, values_, weights_);
  }

  SPECD_BODY int32_t Count(const Between& bracket) { return team_.Count(bracket, values_); }

 private:
  T& team_;
  const float floor_;
  typename T::Tile values_;
  typename T::Tile weights_;
};

template <Team T>
SPECD_BODY CutEstimate EstimateCut(T& team, const Distribution& p, const RowWorkspace& workspace,
                                   const CutGoal& goal) {
  // The mass below the cut, in units of the largest weight, for each element of the row.
  const double tail = static_cast<double>(goal.all - goal.need) * 0x1p-40;
  const double each = tail / p.row.view.vocab_size;
  RowSample<T> sample(team, p, workspace.list, goal.floor);
  // Smaller weights are 0.
  const float lowest = p.max - 40.0f / p.scale;
  const float low = lowest > goal.floor ? lowest : goal.floor;
  const float rough = sample.Seek(static_cast<float>(each * kTileSize), low, p.max, 9);
  const double seen = TailOfSteps(team, p, {goal.floor, rough}, workspace.tallies);
  const double sum = sample.SumBelow(rough) + (each - seen) * kTileSize;
  const float near = 0.5f / p.scale;
  CutEstimate estimate;
  estimate.value = sample.Seek(static_cast<float>(sum), rough - near, rough + near, 10);
  const float window = 0.125f / p.scale;
  const int32_t count = sample.Count({estimate.value - window, estimate.value + window});
  // With less the density is a guess. The nucleus may then be small, and the row soon listed.
  constexpr int32_t kCountMin = 16;
  if (count < kCountMin) return estimate;
  const double share = static_cast<double>(p.row.view.vocab_size) / kTileSize;
  estimate.density = count * share / (2.0 * static_cast<double>(window));
  return estimate;
}

}  // namespace specd
