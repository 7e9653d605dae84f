// WarpLists makes short lists of numbers, ids and elements for WarpTeam: each lane looks at numbers
// of its own.
//
// What a lane finds goes behind what lower lanes found, so lists ascend. Lists lie in memory that
// all lanes read. The functions write them without a barrier behind, unless they say so. All lanes
// call each function together, with functions of their own as in warp_arrays.h.
#pragma once

#include "kernels/warps/warp_arrays.h"
#include "kernels/warps/warp_mask.h"

namespace specd {

template <typename Thread>
class WarpLists : public WarpArrays<Thread> {
  using Lanes = WarpArrays<Thread>;

 public:
  using Lanes::kWarpSize;

  // Lists the i below `num` for which f(i) is true. Returns their number, or -1 if there are more
  // than `most`.
  template <typename F>
  SPECD_INLINE int32_t ListWhere(int32_t num, const F& f, int32_t most, int32_t* list) const {
    constexpr int32_t kLooks = 4;
    int32_t num_listed = 0;
    for (int32_t base = 0; base < num; base += kLooks * kWarpSize) {
      uint32_t found[kLooks];
      SPECD_UNROLL
      for (int32_t look = 0; look < kLooks; ++look) {
        const int32_t i = base + look * kWarpSize + thread_.lane();
        const bool here = f(i < num ? i : num - 1);
        found[look] = thread_.Ballot(i < num && here);
      }
      SPECD_UNROLL
      for (int32_t look = 0; look < kLooks; ++look) {
        const int32_t place = num_listed + NumBelowMe(found[look]);
        num_listed += NumNodes(found[look]);
        if (num_listed > most) return -1;
        if (IsMine(found[look])) list[place] = base + look * kWarpSize + thread_.lane();
      }
    }
    return num_listed;
  }

  // Which elements of the steps numbers[0..num_steps) of a row f is true for. No step is looked at
  // before all are requested.
  template <typename F>
  SPECD_BODY WarpMask LookAtSteps(const RowView& row, const int32_t* numbers, int32_t num_steps,
                                  const F& f) const {
    const auto number_of = [&](int32_t step) { return numbers[step]; };
    float values[kStepsPerTile][8];
    const uint32_t steps = (1u << num_steps) - 1;
    FetchStepsOf(row, thread_.lane(), steps, number_of, values);
    WarpMask chosen{{0, 0}};
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      SPECD_UNROLL
      for (int32_t j = 0; j < 8; ++j) {
        const uint32_t is_chosen = f(values[step][j]) ? steps >> step & 1u : 0u;
        chosen.words[step / 4] |= is_chosen << (8 * (step % 4) + j);
      }
    }
    // Elements after the row's end, which f may be true for.
    const int32_t rest = row.vocab_size - numbers[num_steps - 1] * kLanes - 8 * thread_.lane();
    chosen.Forbid(num_steps - 1, rest >= 8 ? 0u : 0xFFu << (rest < 0 ? 0 : rest) & 0xFFu);
    return chosen;
  }

  // The ids of steps that two rows of a MaskView allow.
  SPECD_INLINE WarpMask MaskOfSteps(const uint32_t* words, const uint32_t* others,
                                    int32_t vocab_size, const int32_t* numbers,
                                    int32_t num_steps) const {
    const auto number_of = [&](int32_t step) {
      return numbers[step < num_steps ? step : num_steps - 1];
    };
    return WarpMask::OfSteps(words, others, vocab_size, number_of, thread_.lane());
  }

  // Adds the ids of chosen elements of steps to a list of `num` ids. Returns the new number, or -1
  // if it were above `most`.
  SPECD_INLINE int32_t AddIds(const WarpMask& chosen, const int32_t* numbers, int32_t num,
                              int32_t most, TokenId* ids) {
    int32_t places[kStepsPerTile];
    uint32_t found = 0;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      places[step] = NumNodes(chosen.OfStep(step));
      found |= (thread_.Ballot(chosen.AllowsAnyOf(step)) != 0 ? 1u : 0u) << step;
    }
    const int32_t more = this->PlacesOfSteps(places);
    if (num + more > most) return -1;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      if ((found >> step & 1u) == 0) continue;
      const TokenId first = numbers[step] * kLanes + 8 * thread_.lane();
      TokenId* next = ids + num + places[step];
      for (uint32_t rest = chosen.OfStep(step); rest != 0; rest &= rest - 1) {
        *next++ = first + this->LowestBit(rest);
      }
    }
    return num + more;
  }

  // Chooses id_of(i), 0 <= i < num, if it lies in one of the steps and f(i) is true. The ids
  // ascend, as the steps do.
  template <typename IdOf, typename F>
  SPECD_INLINE void ChooseIds(const int32_t* numbers, int32_t num_steps, int32_t num,
                              const IdOf& id_of, const F& f, WarpMask* chosen) {
    const TokenId end = (numbers[num_steps - 1] + 1) * kLanes;
    const TokenId first = numbers[0] * kLanes;
    for (int32_t i = this->NumBelow(num, [&](int32_t k) { return id_of(k) < first; }); i < num;
         i += kWarpSize) {
      const int32_t mine = i + thread_.lane();
      const TokenId id = mine < num ? id_of(mine) : end;
      int32_t at = -1;
      SPECD_UNROLL
      for (int32_t step = 0; step < kStepsPerTile; ++step) {
        at = step < num_steps && numbers[step] == id / kLanes ? step : at;
      }
      const bool is_chosen = at >= 0 && f(mine);
      for (uint32_t rest = thread_.Ballot(is_chosen); rest != 0; rest &= rest - 1) {
        const int32_t lane = this->LowestBit(rest);
        const TokenId other = this->ShuffleValue(id, lane);
        const int32_t step = this->ShuffleValue(at, lane);
        if (other % kLanes / 8 == thread_.lane()) chosen->Allow(step, 1u << other % 8);
      }
      if (thread_.Ballot(id >= end) != 0) return;
    }
  }

  // Finds the values of listed ids, and keeps the ids whose value is not below `floor`. Returns
  // their number. Ends with a barrier.
  template <typename ValueOf>
  SPECD_INLINE int32_t KeepFrom(float floor, int32_t num, const ValueOf& value_of,
                                const ElementList& list) {
    int32_t num_kept = 0;
    for (int32_t base = 0; base < num; base += kWarpSize) {
      const int32_t i = base + thread_.lane();
      const TokenId id = list.ids[i < num ? i : num - 1];
      const float value = value_of(id);
      const uint32_t kept = thread_.Ballot(i < num && value >= floor);
      thread_.Sync();  // all lanes have their ids
      if (IsMine(kept)) {
        const int32_t place = num_kept + NumBelowMe(kept);
        list.values[place] = value;
        list.ids[place] = id;
      }
      num_kept += NumNodes(kept);
    }
    thread_.Sync();
    return num_kept;
  }

  // Leaves the places of values in their order: by value, descending, then by place. REQUIRES: no
  // value is NaN. Ends with a barrier.
  SPECD_BODY void Order(const float* values, int32_t num, int32_t* order) const {
    for (int32_t base = 0; base < num; base += kWarpSize) {
      const int32_t mine = base + thread_.lane();
      const float value = values[mine < num ? mine : num - 1];
      int32_t rank = 0;
      for (int32_t from = 0; from < num; from += kWarpSize) {
        const int32_t i = from + thread_.lane();
        const uint32_t others = i < num ? BitsOf(values[i]) : BitsOf(-kInfinity);
        SPECD_UNROLL
        for (int32_t lane = 0; lane < kWarpSize; ++lane) {
          const float other = FloatOf(thread_.Shuffle(others, lane));
          rank += other > value || (other == value && from + lane < mine) ? 1 : 0;
        }
      }
      if (mine < num) order[rank] = mine;
    }
    thread_.Sync();
  }

 protected:
  using Lanes::thread_;

  SPECD_INLINE explicit WarpLists(const Thread& thread) : Lanes(thread) {}

 private:
  SPECD_INLINE bool IsMine(uint32_t lanes) const { return (lanes >> thread_.lane() & 1u) != 0; }
  SPECD_INLINE int32_t NumBelowMe(uint32_t lanes) const {
    return NumNodes(lanes & ((1u << thread_.lane()) - 1));
  }
};

}  // namespace specd
