// WarpDraws sums integer weights of tiles and finds prefixes of them, for WarpTeam.
//
// A thread brings its elements of each step (warp_tile.h). All lanes call each function together.
#pragma once

#include "kernels/bodies/team.h"
#include "kernels/warps/warp_lists.h"
#include "kernels/warps/warp_tile.h"

namespace specd {

template <typename Thread>
class WarpDraws : public WarpLists<Thread> {
  using Lanes = WarpLists<Thread>;
  using Tile = WarpTile;

 public:
  static constexpr int32_t kLanesPerThread = Tile::kLanesPerThread;

  template <typename F, typename... Tiles>
  SPECD_INLINE uint64_t SumWeights(const F& f, int32_t exponent, const Tiles&... tiles) {
    uint64_t sum = 0;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      if (Tile::IsIn((tiles.steps | ...), step)) sum += StepWeight(f, exponent, step, tiles...);
    }
    return SumOfWarp(sum);
  }

  template <typename F, typename... Tiles>
  SPECD_BODY PrefixPlace FindPrefix(const F& f, int32_t exponent, uint64_t threshold,
                                    const Tiles&... tiles) {
    StepSums sums;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      sums.mine[step] = 0;
      if (!Tile::IsIn((tiles.steps | ...), step)) continue;
      sums.mine[step] = StepWeight(f, exponent, step, tiles...);
    }
    SumStepsOfWarp(&sums);
    return FindInSteps(sums, threshold, [&](int32_t step, int32_t j) {
      return IntegerWeight(f(tiles.values[step][j]...), exponent);
    });
  }

  // Draws in proportion to weights that are not below 0 and are made once: FindPrefix with the
  // exponent of the largest weight, and with threshold_of(the sum of all) as its threshold.
  template <typename F, typename ThresholdOf, typename... Tiles>
  SPECD_INLINE PrefixPlace Draw(const F& f, const ThresholdOf& threshold_of,
                                const Tiles&... tiles) {
    float weights[kStepsPerTile][kLanesPerThread];
    float max = 0;
    Tile::ForEachElement([&](int32_t step, int32_t j) {
      const float weight = f(tiles.values[step][j]...);
      weights[step][j] = weight;
      max = LargerNumber(weight, max);
    });
    const WeightScale scale(ExponentOf(LargestOfLanes(max)));
    StepSums sums;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      sums.mine[step] = 0;
      SPECD_UNROLL
      for (int32_t j = 0; j < kLanesPerThread; ++j) {
        sums.mine[step] += scale.IntegerOf(weights[step][j]);
      }
    }
    const uint64_t total = SumStepsOfWarp(&sums);
    return FindInSteps(sums, threshold_of(total), [&](int32_t at, int32_t j) {
      float weight = 0;
      SPECD_UNROLL
      for (int32_t step = 0; step < kStepsPerTile; ++step) {
        weight = step == at ? weights[step][j] : weight;
      }
      return scale.IntegerOf(weight);
    });
  }

 protected:
  using Lanes::InclusiveScan;
  using Lanes::LargestOfLanes;
  using Lanes::LowestBit;
  using Lanes::ShuffleValue;
  using Lanes::SumOfWarp;
  using Lanes::thread_;

  SPECD_INLINE explicit WarpDraws(const Thread& thread) : Lanes(thread) {}

  SPECD_INLINE int32_t ElementAt(int32_t step, int32_t j) const {
    return step * kLanes + thread_.lane() * kLanesPerThread + j;
  }

 private:
  // IntegerWeight of weights below 2^(exponent + 1), by products with powers of two. The products
  // are exact, or below 1. They take a third of the instructions.
  class WeightScale {
   public:
    SPECD_INLINE explicit WeightScale(int32_t exponent)
        : lift_(exponent < kLow ? PowerOfTwo(kLift) : 1.0f),
          unit_(PowerOfTwo(kWeightBits - exponent - (exponent < kLow ? kLift : 0))) {}

    SPECD_INLINE uint64_t IntegerOf(float weight) const {
      const float scaled = weight * lift_ * unit_;
      // If the row changed meanwhile, the weight may be anything. The bits of negative numbers, of
      // NaN and of +inf are above those of the limit.
      return static_cast<uint64_t>(BitsOf(scaled) < BitsOf(kLimit) ? scaled : 0.0f);
    }

   private:
    // 2^(40 - exponent) is a float if the exponent is not below this one.
    static constexpr int32_t kLow = -80;
    static constexpr int32_t kLift = 64;
    static constexpr float kLimit = 0x1p41f;

    SPECD_INLINE static float PowerOfTwo(int32_t exponent) {
      return FloatOf(static_cast<uint32_t>(127 + exponent) << 23);
    }

    float lift_;
    float unit_;
  };

  // The weight of this thread's 8 elements of one step.
  template <typename F, typename... Tiles>
  SPECD_INLINE uint64_t StepWeight(const F& f, int32_t exponent, int32_t step,
                                   const Tiles&... tiles) const {
    uint64_t sum = 0;
    SPECD_UNROLL
    for (int32_t j = 0; j < kLanesPerThread; ++j) {
      sum += IntegerWeight(f(tiles.values[step][j]...), exponent);
    }
    return sum;
  }

  // The sums of the weights of each step: those of this thread, and of the warp.
  struct StepSums {
    uint64_t mine[kStepsPerTile];
    uint64_t all[kStepsPerTile];
  };
  // Sets `all`. Returns the sum of all steps.
  SPECD_INLINE uint64_t SumStepsOfWarp(StepSums* sums) {
    uint64_t total = 0;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      sums->all[step] = SumOfWarp(sums->mine[step]);
      total += sums->all[step];
    }
    return total;
  }

  // Element order is step, then lane, then j. The sums of all steps give the step, a scan over its
  // lanes gives the lane.
  template <typename WeightOf>
  SPECD_INLINE PrefixPlace FindInSteps(const StepSums& sums, uint64_t threshold,
                                       const WeightOf& weight_of) {
    uint64_t before = 0;  // the sum of all steps before `at`
    uint64_t mine = 0;    // this thread's sum in `at`
    int32_t at = -1;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      const bool is_here = at < 0 && before + sums.all[step] > threshold;
      at = is_here ? step : at;
      mine = is_here ? sums.mine[step] : mine;
      before += at < 0 ? sums.all[step] : 0;
    }
    if (at < 0) return {};
    uint64_t running = before + InclusiveScan(mine);
    const int32_t finder = LowestBit(thread_.Ballot(running > threshold));
    running -= mine;
    PrefixPlace place;
    SPECD_UNROLL
    for (int32_t j = 0; j < kLanesPerThread; ++j) {
      const uint64_t weight = weight_of(at, j);
      if (place.element < 0 && running + weight > threshold) {
        place = {.element = ElementAt(at, j), .before = running, .weight = weight};
      }
      running += weight;
    }
    return {ShuffleValue(place.element, finder), ShuffleValue(place.before, finder),
            ShuffleValue(place.weight, finder)};
  }
};

}  // namespace specd
