// LoadTile loads a tile for SimdTeam, and Rewrite changes it.
//
// A load converts elements to fp32. simd_float.h says who may include this. Pure functions, except
// for the tile.
#pragma once

#include <type_traits>

#include "kernels/cpu/cpu_tile.h"
#include "kernels/cpu/simd_block.h"
#include "kernels/cpu/simd_float.h"
#include "kernels/cpu/simd_lanes.h"

namespace specd {
inline namespace HWY_NAMESPACE {

// The registers that a pass uses at once.
inline constexpr int32_t kChunk = 8;
inline constexpr int32_t kChunkLanes = kChunk * kSimdWidth;

SPECD_INLINE void FetchAhead(const CpuTile& tile) {
  for (int32_t i = 0; i < tile.bytes_ahead; i += 64) __builtin_prefetch(tile.ahead + i);
}

SPECD_INLINE SimdFloat At(const char* step, int32_t lane) {
  return SimdFloat(hn::LoadU(FloatTag(), reinterpret_cast<const float*>(step) + lane));
}

SPECD_INLINE SimdBlock BlockAt(const char* step, int32_t lane) {
  return SimdBlock::Of([&](int32_t i) { return At(step, lane + i * kSimdWidth); });
}

// Merges a step's elements x(lane) into `max`. Returns the lanes that met a NaN.
template <typename Element>
SPECD_INLINE SimdMask OfferStep(SimdFloat* max, const Element& x) {
  SimdMask nan = NoLanes();
#pragma GCC unroll 16
  for (int32_t i = 0; i < kChunk; ++i) max[i] = x(i * kSimdWidth);
#pragma GCC unroll 16
  for (int32_t i = 0; i < kChunk; i += 2) nan = nan | Unordered(max[i], max[i + 1]);
  for (int32_t first = kChunkLanes; first < kLanes; first += kChunkLanes) {
    // Loads go forward through memory, as the hardware's prefetcher expects.
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#pragma GCC unroll 16
    for (int32_t i = 0; i < kChunk; i += 2) {
      const SimdFloat even = x(first + i * kSimdWidth);
      const SimdFloat odd = x(first + (i + 1) * kSimdWidth);
      max[i] = Larger{}(even, max[i]);
      max[i + 1] = Larger{}(odd, max[i + 1]);
      nan = nan | Unordered(even, odd);
    }
  }
  return nan;
}

// Writes x(lane) for each register of a full step.
template <typename Element>
SPECD_INLINE void FillStep(int32_t step, CpuTile* tile, const Element& x) {
  float* out = tile->Move(step);
#pragma GCC unroll 16
  for (int32_t lane = 0; lane < kLanes; lane += kSimdWidth) {
    hn::Store(SimdFloat(x(lane)).raw, FloatTag(), out + lane);
  }
}

// Replaces each x of the first `count` elements of a step by f(x, lane). (If `count` is less than
// the step, the step already lies in the buffer, with -inf after its elements.)
template <typename F>
SPECD_INLINE void Rewrite(int32_t step, int32_t count, CpuTile* tile, const F& f) {
  const char* values = tile->steps[step];
  if (count == kLanes) {
    FillStep(step, tile, [&](int32_t lane) { return f(At(values, lane), lane); });
    return;
  }
  float* out = tile->Move(step);
  for (int32_t lane = 0; lane < count; lane += kSimdWidth) {
    hn::Store(SimdFloat(f(At(values, lane), lane)).raw, FloatTag(), out + lane);
  }
}

template <DType kDType>
SPECD_INLINE SimdFloat LoadAs(const char* source) {
  if constexpr (kDType == DType::kFloat32) {
    return SimdFloat(hn::LoadU(FloatTag(), reinterpret_cast<const float*>(source)));
  } else if constexpr (kDType == DType::kBFloat16) {
    const hn::Rebind<uint16_t, FloatTag> half;
    const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(source));
    return FloatOf(hn::ShiftLeft<16>(hn::PromoteTo(Uint32Tag(), bits)));
  } else {
    const hn::Rebind<hwy::float16_t, FloatTag> half;
    const auto bits = hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(source));
    return SimdFloat(hn::PromoteTo(FloatTag(), bits));
  }
}

// Converts the end of a row. Bytes after the end are not read.
template <DType kDType, typename F>
SPECD_INLINE void ConvertPart(const char* source, int32_t count, const F& f, float* out) {
  constexpr int32_t kElementBytes = SizeBytes(kDType);
  int32_t lane = 0;
  for (; lane + kSimdWidth <= count; lane += kSimdWidth) {
    hn::Store(SimdFloat(f(LoadAs<kDType>(source + lane * kElementBytes))).raw, FloatTag(),
              out + lane);
  }
  const SimdMask rest = FirstLanes(count - lane);
  SimdFloat last;
  if constexpr (kDType == DType::kFloat32) {
    const auto* const values = reinterpret_cast<const float*>(source) + lane;
    last = SimdFloat(hn::MaskedLoad(rest.raw, FloatTag(), values));
  } else {
    alignas(64) char padded[kSimdWidth * kElementBytes] = {};
    __builtin_memcpy(padded, source + lane * kElementBytes,
                     static_cast<size_t>((count - lane) * kElementBytes));
    last = LoadAs<kDType>(padded);
  }
  hn::Store(SimdFloat(Select(rest, f(last), -kInfinity)).raw, FloatTag(), out + lane);
  for (lane += kSimdWidth; lane < kLanes; lane += kSimdWidth) {
    hn::Store(SimdFloat(-kInfinity).raw, FloatTag(), out + lane);
  }
}

// The elements of kSimdWidth ids of a narrow row, from this one on. No load depends on a branch. A
// 16-bit element is the upper half of the word that begins with the element before it; that of
// column 0 is the lower half of the first word.
template <DType kDType>
SPECD_INLINE SimdFloat GatherAs(const RowView& row, TokenId first) {
  const auto column = hn::LoadU(Int32Tag(), row.columns + first);
  SimdFloat x;
  if constexpr (kDType == DType::kFloat32) {
    const auto inside = hn::Max(column, hn::Zero(Int32Tag()));
    x = SimdFloat(hn::GatherIndex(FloatTag(), static_cast<const float*>(row.data), inside));
  } else {
    const auto one = hn::Set(Int32Tag(), 1);
    const auto offset = hn::ShiftLeft<1>(hn::Sub(hn::Max(column, one), one));
    const auto word = hn::BitCast(
        Uint32Tag(), hn::GatherOffset(Int32Tag(), static_cast<const int32_t*>(row.data), offset));
    const auto is_lower = hn::RebindMask(Uint32Tag(), hn::Eq(column, hn::Zero(Int32Tag())));
    const auto upper = hn::IfThenElse(is_lower, hn::ShiftLeft<16>(word), word);
    const auto bits = hn::ShiftRight<16>(upper);
    if constexpr (kDType == DType::kBFloat16) {
      x = FloatOf(hn::ShiftLeft<16>(bits));
    } else {
      const hn::Rebind<uint16_t, FloatTag> half;
      const hn::Rebind<hwy::float16_t, FloatTag> half_float;
      const auto narrow = hn::DemoteTo(half, hn::BitCast(Int32Tag(), bits));
      x = SimdFloat(hn::PromoteTo(FloatTag(), hn::BitCast(half_float, narrow)));
    }
  }
  const SimdMask is_absent(hn::RebindMask(FloatTag(), hn::Lt(column, hn::Zero(Int32Tag()))));
  return Select(is_absent, AbsentElement(row), x);
}

template <DType kDType, typename F>
SPECD_INLINE void LoadMapped(const RowView& row, int32_t tile_index, const F& f, CpuTile* tile) {
  for (const int32_t step : StepsOf(*tile)) {
    const TokenId first = tile_index * kTileSize + step * kLanes;
    const int32_t count = tile->CountOf(step);
    if (count == kLanes) {
      FillStep(step, tile, [&](int32_t lane) { return f(GatherAs<kDType>(row, first + lane)); });
      continue;
    }
    float* const out = tile->Move(step);
    for (int32_t v = 0; v < count; ++v) out[v] = f(LoadMappedAs<kDType>(row, first + v));
    for (int32_t v = count; v < kLanes; ++v) out[v] = -kInfinity;
  }
}

// Loads a tile's steps; each element is f(x) of the row's element x.
template <DType kDType, typename F>
SPECD_INLINE void LoadTile(const RowView& row, int32_t tile_index, uint32_t steps,
                           int32_t num_groups, const F& f, CpuTile* tile) {
  constexpr bool kInPlace = kDType == DType::kFloat32 && std::is_same_v<F, Identity>;
  PlaceSteps(row, tile_index, steps, num_groups, tile);
  if (row.columns != nullptr) return LoadMapped<kDType>(row, tile_index, f, tile);
  for (const int32_t step : StepsOf(*tile)) {
    const int32_t count = tile->CountOf(step);
    if (kInPlace && count == kLanes) continue;
    const char* source = tile->steps[step];
    if (count < kLanes) {
      ConvertPart<kDType>(source, count, f, tile->Move(step));
      continue;
    }
    FillStep(step, tile,
             [&](int32_t lane) { return f(LoadAs<kDType>(source + lane * SizeBytes(kDType))); });
  }
  // The work that follows (maxima, edits, weights) would leave memory idle.
  if (steps == kAllSteps) FetchAhead(*tile);
}

}  // namespace HWY_NAMESPACE
}  // namespace specd
