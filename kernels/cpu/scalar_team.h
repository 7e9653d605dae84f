// ScalarTeam is the reference team: one group, arrays and loops.
//
// The loops have constant length and no branches, so a compiler turns them into vector
// instructions. kTarget only makes the types of differently compiled files different. Each
// translation unit therefore instantiates its own copy of every body. No function for a newer
// processor can then be linked into the path of an older one.
#pragma once

#include <type_traits>

#include "kernels/bodies/team.h"
#include "kernels/cpu/cpu_target.h"
#include "kernels/cpu/cpu_tile.h"
#include "kernels/cpu/spin_barrier.h"

namespace specd {

template <CpuTarget kTarget>
class ScalarTeam : public CpuMasking {
 public:
  using Tile = CpuTile;
  static constexpr bool kReadsInPlace = true;

  ScalarTeam() = default;
  SPECD_INLINE explicit ScalarTeam(const TeamSeat& seat) : seat_(seat) {}

  SPECD_INLINE int32_t group() const { return seat_.group; }
  SPECD_INLINE int32_t num_groups() const { return seat_.num_groups; }
  SPECD_INLINE bool leader() const { return seat_.group == 0; }
  SPECD_INLINE void Sync() {
    if (seat_.num_groups > 1) seat_.barrier->Wait();
  }

  SPECD_INLINE float Agree(float value) const { return value; }

  template <typename Value>
  SPECD_INLINE void Publish(const Value& value, Value* where) const {
    *where = value;
  }
  template <typename Value, typename F>
  SPECD_INLINE void Replace(Value* where, const F& f) const {
    *where = f(*where);
  }

  template <typename F>
  SPECD_INLINE void Load(const RowView& row, int32_t tile_index, uint32_t steps, const F& f,
                         Tile* tile) const {
    if (row.dtype == DType::kBFloat16) {
      LoadAll<DType::kBFloat16>(row, tile_index, steps, f, tile);
    } else if (row.dtype == DType::kFloat16) {
      LoadAll<DType::kFloat16>(row, tile_index, steps, f, tile);
    } else {
      LoadAll<DType::kFloat32>(row, tile_index, steps, f, tile);
    }
  }

  SPECD_INLINE void ApplyMask(const Mask& mask, Tile* tile) const {
    for (const uint32_t* words : mask.masks) {
      if (words != nullptr) ApplyWords(words, mask.tile_index, tile);
    }
  }

  SPECD_INLINE void Set(int32_t element, float value, Tile* tile) const {
    const int32_t step = element / kLanes;
    if (tile->Has(step)) Own(step, tile)[element % kLanes] = value;
  }

  template <typename ElementOf, typename ValueOf>
  SPECD_INLINE void SetEach(int32_t i, int32_t end, const ElementOf& element_of,
                            const ValueOf& value_of, Tile* tile) const {
    SetInTurn(*this, i, end, element_of, value_of, tile);
  }

  SPECD_INLINE void Keep(float value, int32_t last, Tile* tile) const {
    for (const int32_t step : StepsOf(*tile)) {
      float* values = Own(step, tile);
      for (int32_t v = 0; v < kLanes; ++v) {
        const float x = values[v];
        const bool kept = x > value || (x == value && step * kLanes + v <= last);
        values[v] = kept ? x : -kInfinity;
      }
    }
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Max(const F& f, const Tiles&... tiles) const {
    float max[kLanes];
    int32_t nan[kLanes];
    for (int32_t v = 0; v < kLanes; ++v) {
      max[v] = -kInfinity;
      nan[v] = 0;
    }
    for (const int32_t step : StepsOf(tiles...)) {
      MaxOfStep(f, max, nan, tiles.steps[step]...);
    }
    const float largest = Fold(max, nan);
    return nan[0] != 0 ? __builtin_nanf("") : largest;
  }

  SPECD_INLINE float MaxBySteps(const Tile& tile, float* out) const {
    int32_t nan[kLanes];
    for (int32_t v = 0; v < kLanes; ++v) nan[v] = 0;
    float largest = -kInfinity;
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      float max[kLanes];
      for (int32_t v = 0; v < kLanes; ++v) max[v] = -kInfinity;
      if (tile.Has(step)) MaxOfStep(Identity{}, max, nan, tile.steps[step]);
      out[step] = Fold(max, nan);
      if (out[step] > largest) largest = out[step];
    }
    return nan[0] != 0 ? __builtin_nanf("") : largest;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE float Sum(const F& f, const Tiles&... tiles) const {
    float sum[kLanes];
    for (int32_t v = 0; v < kLanes; ++v) sum[v] = 0;
    for (const int32_t step : StepsOf(tiles...)) {
      for (int32_t v = 0; v < kLanes; ++v) sum[v] += f(At(tiles.steps[step], v)...);
    }
    // Level k adds lanes v and v xor 2^k. Both lanes of a pair would hold the same sum, so the
    // array keeps it once and is half as long after each level.
    for (int32_t half = kLanes / 2; half > 0; half /= 2) {
      for (int32_t v = 0; v < half; ++v) sum[v] = sum[2 * v] + sum[2 * v + 1];
    }
    return sum[0];
  }

  template <typename F>
  SPECD_INLINE int32_t Count(const F& f, const Tile& tile) const {
    int32_t count = 0;
    VisitElements(tile, [&](int32_t, float x) { count += f(x) ? 1 : 0; });
    return count;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE uint64_t SumWeights(const F& f, int32_t exponent, const Tiles&... tiles) const {
    uint64_t sum = 0;
    for (const int32_t step : StepsOf(tiles...)) {
      for (int32_t v = 0; v < kLanes; ++v) {
        sum += IntegerWeight(f(At(tiles.steps[step], v)...), exponent);
      }
    }
    return sum;
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE PrefixPlace FindPrefix(const F& f, int32_t exponent, uint64_t threshold,
                                      const Tiles&... tiles) const {
    uint64_t prefix = 0;
    for (const int32_t step : StepsOf(tiles...)) {
      for (int32_t v = 0; v < kLanes; ++v) {
        const uint64_t weight = IntegerWeight(f(At(tiles.steps[step], v)...), exponent);
        if (prefix + weight > threshold)
          return {.element = step * kLanes + v, .before = prefix, .weight = weight};
        prefix += weight;
      }
    }
    return {};
  }

  template <typename F, typename... Tiles>
  SPECD_INLINE double SumInOrder(const F& f, const Tiles&... tiles) const {
    double sum = 0;
    const int32_t count = CountOf(tiles...);
    for (int32_t e = 0; e < count; ++e) {
      sum += static_cast<double>(f(At(tiles.steps[e / kLanes], e % kLanes)...));
    }
    return sum;
  }

  template <typename F>
  SPECD_INLINE int32_t FindFirst(const F& f, const Tile& tile) const {
    int32_t first = -1;
    VisitElements(tile, [&](int32_t e, float x) {
      if (first < 0 && f(x)) first = e;
    });
    return first;
  }

  template <typename F>
  SPECD_INLINE int32_t Pack(const F& f, const Tile& tile, TokenId first_id, float* values,
                            TokenId* ids) const {
    int32_t count = 0;
    VisitElements(tile, [&](int32_t e, float x) {
      if (!f(x)) return;
      values[count] = x;
      ids[count] = first_id + e;
      ++count;
    });
    return count;
  }

  template <typename F>
  SPECD_INLINE void Store(const F& f, const Tile& tile, int32_t count, float* out) const {
    for (int32_t e = 0; e < count; ++e) out[e] = f(At(tile.steps[e / kLanes], e % kLanes));
  }

 private:
  SPECD_INLINE void ApplyWords(const uint32_t* words, int32_t tile_index, Tile* tile) const {
    // Words after the vocabulary do not exist; elements there are -inf already.
    const uint32_t* of_tile = words + tile_index * (kTileSize / 32);
    for (const int32_t step : StepsOf(*tile)) {
      float* values = Own(step, tile);
      const uint32_t* of_step = of_tile + step * (kLanes / 32);
      for (int32_t v = 0; v < tile->CountOf(step); ++v) {
        if ((of_step[v / 32] >> (v % 32) & 1u) == 0) values[v] = -kInfinity;
      }
    }
  }

  SPECD_INLINE static float At(const char* step, int32_t v) {
    return LoadElementAs<DType::kFloat32>(step, v);
  }

  // A writable copy of a step, which is then no longer the row itself.
  SPECD_INLINE static float* Own(int32_t step, Tile* tile) {
    const char* values = tile->steps[step];
    float* own = tile->Move(step);
    if (values != tile->steps[step]) __builtin_memcpy(own, values, Tile::kStepBytes);
    return own;
  }

  template <typename F, typename... Steps>
  SPECD_INLINE static void MaxOfStep(const F& f, float* max, int32_t* nan, const Steps*... steps) {
    for (int32_t v = 0; v < kLanes; ++v) {
      const float x = f(At(steps, v)...);
      max[v] = x > max[v] ? x : max[v];
      nan[v] |= x != x ? 1 : 0;
    }
  }

  // The largest of all lanes; nan[0] becomes nonzero if any lane was NaN.
  SPECD_INLINE static float Fold(float* max, int32_t* nan) {
    for (int32_t half = kLanes / 2; half > 0; half /= 2) {
      for (int32_t v = 0; v < half; ++v) {
        max[v] = max[v + half] > max[v] ? max[v + half] : max[v];
        nan[v] |= nan[v + half];
      }
    }
    // The order decides which of two zeros is found. The sum with +0 is +0 for both.
    return max[0] + 0.0f;
  }

  template <typename Visit>
  SPECD_INLINE static void VisitElements(const Tile& tile, const Visit& visit) {
    for (const int32_t step : StepsOf(tile)) {
      const char* values = tile.steps[step];
      for (int32_t v = 0; v < tile.CountOf(step); ++v) visit(step * kLanes + v, At(values, v));
    }
  }

  template <DType kDType, typename F>
  SPECD_INLINE void LoadAll(const RowView& row, int32_t tile_index, uint32_t steps, const F& f,
                            Tile* tile) const {
    constexpr bool kInPlace = kDType == DType::kFloat32 && std::is_same_v<F, Identity>;
    PlaceSteps(row, tile_index, steps, seat_.num_groups, tile);
    for (const int32_t step : StepsOf(*tile)) {
      const int32_t count = tile->CountOf(step);
      if (row.columns != nullptr) {
        const TokenId first = tile_index * kTileSize + step * kLanes;
        float* const by_id = tile->Move(step);
        for (int32_t v = 0; v < count; ++v) by_id[v] = f(LoadMappedAs<kDType>(row, first + v));
        for (int32_t v = count; v < kLanes; ++v) by_id[v] = -kInfinity;
        continue;
      }
      if (kInPlace && count == kLanes) continue;
      const char* source = tile->steps[step];
      float* out = tile->Move(step);
      if (count == kLanes) {
        for (int32_t v = 0; v < kLanes; ++v) out[v] = f(LoadElementAs<kDType>(source, v));
        continue;
      }
      for (int32_t v = 0; v < count; ++v) out[v] = f(LoadElementAs<kDType>(source, v));
      for (int32_t v = count; v < kLanes; ++v) out[v] = -kInfinity;
    }
  }

  TeamSeat seat_;
};

}  // namespace specd
