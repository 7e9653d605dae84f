// WarpArrays looks at short arrays with the 32 lanes of a warp for WarpTeam: each lane reads
// numbers of its own.
//
// A row of 128,256 ids has 63 tiles. As a tile their numbers would lie in 8 lanes, and each
// function would walk over 64 registers. All lanes call each function together. A caller passes
// functions of its own. They must not call the team, because lanes may be at different places.
// Those of InTurn that all lanes make together may.
#pragma once

#include "kernels/core/draft.h"
#include "kernels/warps/warp_lanes.h"
#include "kernels/warps/warp_load.h"

namespace specd {

template <typename Thread>
class WarpArrays : public WarpLanes<Thread> {
  using Lanes = WarpLanes<Thread>;

 public:
  using Lanes::kWarpSize;

  // The first i below `num` for which f(i) is true, or `num`. Lanes call f at the same time.
  template <typename F>
  SPECD_INLINE int32_t FirstWhere(int32_t num, const F& f) const {
    for (int32_t base = 0; base < num; base += 2 * kWarpSize) {
      const int32_t i = base + thread_.lane();
      const bool here = i < num && f(i);
      const bool behind = i + kWarpSize < num && f(i + kWarpSize);
      const uint32_t found = thread_.Ballot(here);
      const uint32_t found_behind = thread_.Ballot(behind);
      if (found != 0) return base + LowestBit(found);
      if (found_behind != 0) return base + kWarpSize + LowestBit(found_behind);
    }
    return num;
  }

  // The number of lanes for which the predicate is true.
  SPECD_INLINE int32_t NumLanes(bool predicate) const {
    return NumNodes(thread_.Ballot(predicate));
  }

  // How many of the first i are below, for 0 <= i < num. REQUIRES: is_below(i) implies is_below of
  // every smaller number. Lanes look at 32 numbers at the same time.
  template <typename IsBelow>
  SPECD_INLINE int32_t NumBelow(int32_t num, const IsBelow& is_below) const {
    int32_t begin = 0;
    for (int32_t end = num; begin < end;) {
      const int32_t stride = (end - begin + kWarpSize - 1) / kWarpSize;
      const int32_t last = begin + (thread_.lane() + 1) * stride - 1;  // of a group of each lane
      begin += NumNodes(thread_.Ballot(last < end && is_below(last))) * stride;
      end = begin + stride - 1 < end ? begin + stride - 1 : end;
    }
    return begin;
  }

  // The number of i below `num` for which f(i) is true. All lanes call f for many numbers at the
  // same time.
  template <typename F>
  SPECD_INLINE int32_t CountWhere(int32_t num, const F& f) {
    constexpr int32_t kLooks = 16;
    int32_t count = 0;
    for (int32_t base = 0; base < num; base += kLooks * kWarpSize) {
      SPECD_UNROLL
      for (int32_t look = 0; look < kLooks; ++look) {
        const int32_t i = base + look * kWarpSize + thread_.lane();
        const bool here = f(i < num ? i : num - 1);
        count += i < num && here ? 1 : 0;
      }
    }
    return this->SumOfWarp(count);
  }

  // The largest of an array's values; NaN if any is NaN. REQUIRES: count > 0.
  SPECD_INLINE float LargestOf(const float* values, int32_t count) {
    return LargestTerm(count, [values](int32_t i) { return values[i]; });
  }
  // The same for term(i), 0 <= i < num.
  template <typename TermOf>
  SPECD_INLINE float LargestTerm(int32_t num, const TermOf& term_of) {
    float max = -kInfinity;
    for (int32_t base = 0; base < num; base += 2 * kWarpSize) {
      const int32_t i = base + thread_.lane();
      const float here = term_of(i < num ? i : num - 1);
      const float behind = term_of(i + kWarpSize < num ? i + kWarpSize : num - 1);
      max = LargerOrNan(max, LargerOrNan(here, behind));
    }
    return LargestOfLanes(max);
  }

  // The sum of term(i) < 2^41 for 0 <= i < num <= 2^12.
  template <typename TermOf>
  SPECD_INLINE uint64_t SumOfTerms(int32_t num, const TermOf& term_of) {
    uint64_t sum = 0;
    for (int32_t i = thread_.lane(); i - thread_.lane() < num; i += kWarpSize) {
      sum += i < num ? term_of(i) : 0;
    }
    return this->SumOfWarp(sum);
  }

  // The first i whose inclusive prefix of terms exceeds the threshold, as FindPrefix of the team.
  template <typename TermOf>
  SPECD_INLINE PrefixPlace FindTerm(int32_t num, const TermOf& term_of, uint64_t threshold) {
    uint64_t before = 0;
    for (int32_t base = 0; base < num; base += kWarpSize) {
      const int32_t i = base + thread_.lane();
      const uint64_t mine = i < num ? term_of(i) : 0;
      const uint64_t end = before + this->InclusiveScan(mine);
      const uint32_t above = thread_.Ballot(end > threshold);
      if (above != 0) {
        const int32_t finder = LowestBit(above);
        return {base + finder, ShuffleValue(end - mine, finder), ShuffleValue(mine, finder)};
      }
      before = ShuffleValue(end, kWarpSize - 1);
    }
    return {};
  }

  // Draws i, 0 <= i < num, in proportion to mass_of(i) >= 0: FindTerm of the masses as integers,
  // with threshold_of(their sum) as its threshold. No mass above 0: no element.
  template <typename MassOf, typename ThresholdOf>
  SPECD_INLINE PrefixPlace DrawTerm(int32_t num, const MassOf& mass_of,
                                    const ThresholdOf& threshold_of) {
    if (num <= kHeldMost) return DrawHeld(Hold(num, mass_of), threshold_of);
    const float largest = LargestTerm(num, mass_of);
    if (!(largest > 0.0f)) return {};
    const int32_t exponent = ExponentOf(largest);
    const auto weight_of = [&](int32_t i) { return IntegerWeight(mass_of(i), exponent); };
    return FindTerm(num, weight_of, threshold_of(SumOfTerms(num, weight_of)));
  }

  // Terms that lanes hold: lane t has those of t, t + 32, .. Terms behind the last one are `rest`.
  static constexpr int32_t kHeldByLane = 4;
  static constexpr int32_t kHeldMost = kHeldByLane * kWarpSize;
  struct HeldTerms {
    float terms[kHeldByLane];
  };
  // All terms are requested before the first is looked at.
  template <typename TermOf>
  SPECD_INLINE HeldTerms Hold(int32_t num, const TermOf& term_of, float rest = 0) {
    HeldTerms held;
    SPECD_UNROLL
    for (int32_t k = 0; k < kHeldByLane; ++k) {
      const int32_t i = k * kWarpSize + thread_.lane();
      const float term = term_of(i < num ? i : num - 1);
      held.terms[k] = i < num ? term : rest;
    }
    return held;
  }
  SPECD_INLINE float LargestHeld(const HeldTerms& held) {
    float largest = held.terms[0];
    SPECD_UNROLL
    for (int32_t k = 1; k < kHeldByLane; ++k) largest = LargerOrNan(largest, held.terms[k]);
    return LargestOfLanes(largest);
  }

  // The sum of term(i), which is not below 0, for 0 <= i < num, in double, one after another.
  template <typename TermOf>
  SPECD_INLINE double SumTerms(int32_t num, const TermOf& term_of) {
    if (num <= kHeldMost) return SumHeld(num, Hold(num, term_of));
    double sum = 0;
    for (int32_t base = 0; base < num; base += kWarpSize) {
      const int32_t i = base + thread_.lane();
      sum = AddLanes(sum, i < num ? term_of(i) : 0.0f);
    }
    return sum;
  }

  SPECD_INLINE double SumHeld(int32_t num, const HeldTerms& held) {
    double sum = 0;
    SPECD_UNROLL
    for (int32_t k = 0; k < kHeldByLane; ++k) {
      if (k * kWarpSize < num) sum = AddLanes(sum, held.terms[k]);
    }
    return sum;
  }
  // The same in floats and in another order: within kRoughly of the sum.
  SPECD_INLINE float RoughSumHeld(const HeldTerms& held) {
    float sum = (held.terms[0] + held.terms[1]) + (held.terms[2] + held.terms[3]);
    SPECD_UNROLL
    for (int32_t mask = 1; mask < kWarpSize; mask *= 2) sum += this->ShuffleXor(sum, mask);
    return sum;
  }

  // The first element of a row's step for which f is true; -1 if there is none.
  template <typename F>
  SPECD_INLINE int32_t FindInStep(const RowView& row, int32_t number, const F& f) {
    float values[1][8];
    const auto number_of = [&](int32_t) { return number; };
    FetchStepsOf(row, thread_.lane(), 1, number_of, values);
    const int32_t first = number * kLanes + 8 * thread_.lane();
    int32_t mine = 8;
    SPECD_UNROLL
    for (int32_t j = 7; j >= 0; --j) {
      mine = first + j < row.vocab_size && f(values[0][j]) ? j : mine;
    }
    const uint32_t found = thread_.Ballot(mine < 8);
    if (found == 0) return -1;
    const int32_t finder = LowestBit(found);
    return number * kLanes + 8 * finder + ShuffleValue(mine, finder);
  }

  // Walks over 0, 1, .. while i < num. A value that does not pass is visited: visit(i, value_of(i))
  // returns false to end the walk. Values that pass one after another pass in one call: all lanes
  // call pass(i, value, passed), each with its own number and value. `passed` has a bit for each
  // lane whose value passes.
  // Lanes find the values of 32 numbers at the same time, so their loads overlap. Values of numbers
  // that the walk does not reach may be anything.
  template <typename ValueOf, typename Passes, typename Pass, typename Visit>
  SPECD_INLINE void InTurn(int32_t num, const ValueOf& value_of, const Passes& passes,
                           const Pass& pass, const Visit& visit) {
    using Value = decltype(value_of(0));
    for (int32_t base = 0; base < num; base += kWarpSize) {
      const int32_t mine = base + thread_.lane();
      const Value value = mine < num ? value_of(mine) : Value{};
      const uint32_t passing = thread_.Ballot(mine < num && passes(value));
      const int32_t end = num - base < kWarpSize ? num - base : kWarpSize;
      for (int32_t i = 0; i < end; ++i) {
        const uint32_t others = ~passing >> i << i;
        const int32_t next = others == 0 ? kWarpSize : LowestBit(others);
        if (next > i) {
          const uint32_t before = next == kWarpSize ? ~0u : (1u << next) - 1;
          pass(mine, value, before >> i << i);
        }
        i = next;
        if (i < end && !visit(base + i, ShuffleWords(value, i))) return;
      }
    }
  }

 private:
  // Adds the terms of the lanes to a sum, one after another.
  SPECD_INLINE double AddLanes(double sum, float term) {
    const auto mine = static_cast<double>(term);
    SPECD_UNROLL
    for (int32_t lane = 0; lane < kWarpSize; ++lane) sum += ShuffleValue(mine, lane);
    return sum;
  }

  template <typename ThresholdOf>
  SPECD_INLINE PrefixPlace DrawHeld(const HeldTerms& held, const ThresholdOf& threshold_of) {
    const float largest = LargestHeld(held);
    if (!(largest > 0.0f)) return {};
    const int32_t exponent = ExponentOf(largest);
    uint64_t weights[kHeldByLane];
    uint64_t all[kHeldByLane];
    uint64_t total = 0;
    SPECD_UNROLL
    for (int32_t k = 0; k < kHeldByLane; ++k) {
      weights[k] = IntegerWeight(held.terms[k], exponent);
      all[k] = this->SumOfWarp(weights[k]);
      total += all[k];
    }
    const uint64_t threshold = threshold_of(total);
    uint64_t before = 0;  // the sum of all terms before `at`
    uint64_t mine = 0;
    int32_t at = -1;
    SPECD_UNROLL
    for (int32_t k = 0; k < kHeldByLane; ++k) {
      const bool is_here = at < 0 && before + all[k] > threshold;
      at = is_here ? k : at;
      mine = is_here ? weights[k] : mine;
      before += at < 0 ? all[k] : 0;
    }
    if (at < 0) return {};
    const uint64_t end = before + this->InclusiveScan(mine);
    const int32_t finder = LowestBit(thread_.Ballot(end > threshold));
    return {at * kWarpSize + finder, ShuffleValue(end - mine, finder), ShuffleValue(mine, finder)};
  }

 protected:
  using Lanes::LargestOfLanes;
  using Lanes::LowestBit;
  using Lanes::ShuffleValue;
  using Lanes::ShuffleWords;
  using Lanes::thread_;

  SPECD_INLINE explicit WarpArrays(const Thread& thread) : Lanes(thread) {}

  // Turns the numbers of a thread's elements in the steps of a tile into the places of its first
  // ones. Returns the number of all elements. A word has the numbers of three steps, each at most
  // 256, so that a scan serves three.
  SPECD_INLINE int32_t PlacesOfSteps(int32_t (&steps)[kStepsPerTile]) {
    constexpr int32_t kStepsPerWord = 3;
    constexpr int32_t kBits = 10;
    constexpr int32_t kMask = (1 << kBits) - 1;
    constexpr int32_t kNumWords = (kStepsPerTile + kStepsPerWord - 1) / kStepsPerWord;
    int32_t before[kNumWords] = {};
    int32_t all[kNumWords];
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      before[step / kStepsPerWord] += steps[step] << kBits * (step % kStepsPerWord);
    }
    SPECD_UNROLL
    for (int32_t word = 0; word < kNumWords; ++word) {
      const int32_t end = this->InclusiveScan(before[word]);
      all[word] = ShuffleValue(end, kWarpSize - 1);
      before[word] = end - before[word];
    }
    int32_t sum = 0;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      const int32_t shift = kBits * (step % kStepsPerWord);
      steps[step] = sum + (before[step / kStepsPerWord] >> shift & kMask);
      sum += all[step / kStepsPerWord] >> shift & kMask;
    }
    return sum;
  }
};

}  // namespace specd
