// CpuTile holds a tile step by step for the teams of the CPU.
//
// Steps of an fp32 row are read in place. If a step is converted or written, it has a copy in the
// tile's buffer. Steps that were not requested, and those after the row's end, are all -inf, and
// every pass leaves them out.
//
// Like numerics.h, this file is compiled for several instruction sets, so every function is
// inlined. A tile is not shared between threads.
#pragma once

#include "kernels/bodies/tiles.h"
#include "kernels/core/decision.h"
#include "kernels/core/elements.h"
#include "kernels/core/numerics.h"

namespace specd {

struct CpuTile {
  static constexpr int32_t kStepBytes = kLanes * int32_t{sizeof(float)};

  const char* steps[kStepsPerTile];  // fp32; a row may be unaligned
  uint32_t present;                  // bit s: step s is present
  int32_t count;                     // elements of the row
  const char* ahead;                 // the tile of the row that the group loads next
  int32_t bytes_ahead;               // its bytes; 0 if there is no such tile, or if it is not full
  alignas(64) float buffer[kTileSize];

  SPECD_INLINE bool Has(int32_t step) const { return (present >> step & 1u) != 0; }

  // The elements of the row in a present step. A pass that must not look after the row's end stops
  // there.
  SPECD_INLINE int32_t CountOf(int32_t step) const {
    const int32_t rest = count - step * kLanes;
    return rest < kLanes ? rest : kLanes;
  }

  SPECD_INLINE float* BufferOf(int32_t step) { return buffer + step * kLanes; }

  // The memory in which a step is written. The step is no longer the row itself, and the caller has
  // to fill it.
  SPECD_INLINE float* Move(int32_t step) {
    steps[step] = reinterpret_cast<const char*>(BufferOf(step));
    return BufferOf(step);
  }
};

namespace internal {

// The elements of a step that is not present. Objects of all instruction sets may share this data.
struct EmptyStep {
  alignas(64) float values[kLanes];
  constexpr EmptyStep();
};
extern const EmptyStep kEmptyStep;

}  // namespace internal

// Points each step at the row's elements as they are stored. The caller converts those that cannot
// be read in place, and fetches those of a narrow row by id.
SPECD_INLINE void PlaceSteps(const RowView& row, int32_t tile_index, uint32_t steps,
                             int32_t num_groups, CpuTile* tile) {
  const int32_t first = tile_index * kTileSize;
  const int32_t rest = row.vocab_size - first;
  const int32_t element_bytes = SizeBytes(row.dtype);
  const char* source = static_cast<const char*>(row.data) + int64_t{first} * element_bytes;
  tile->count = rest < kTileSize ? rest : kTileSize;
  tile->present = steps & ((2u << ((tile->count - 1) / kLanes)) - 1);
  const int32_t rest_ahead = rest - num_groups * kTileSize;
  tile->ahead = source + num_groups * kTileSize * element_bytes;
  tile->bytes_ahead = rest_ahead < kTileSize ? 0 : kTileSize * element_bytes;
  for (int32_t step = 0; step < kStepsPerTile; ++step) {
    tile->steps[step] = tile->Has(step)
                            ? source + step * kLanes * element_bytes
                            : reinterpret_cast<const char*>(internal::kEmptyStep.values);
  }
  if (row.columns != nullptr) tile->bytes_ahead = 0;
}

// The ids of a tile that two masks allow; null allows all. Words after the vocabulary do not exist.
struct CpuMask {
  const uint32_t* masks[2];
  int32_t vocab_size;
  int32_t tile_index;

  SPECD_INLINE uint32_t StepsLeft() const { return StepsOf(masks[0]) & StepsOf(masks[1]); }

 private:
  SPECD_INLINE uint32_t StepsOf(const uint32_t* words) const {
    constexpr int32_t kWordsPerStep = kLanes / 32;
    if (words == nullptr) return kAllSteps;
    const int32_t first = tile_index * (kTileSize / 32);
    const int32_t num_words = (vocab_size + 31) / 32 - first;
    uint32_t steps = 0;
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      uint32_t any = 0;
      for (int32_t i = step * kWordsPerStep; i < (step + 1) * kWordsPerStep; ++i) {
        any |= i < num_words ? words[first + i] : 0u;
      }
      steps |= (any != 0 ? 1u : 0u) << step;
    }
    return steps;
  }
};

// The mask functions that all teams of the CPU share.
class CpuMasking {
 public:
  using Mask = CpuMask;

  DrawFacts draw;                        // KeepsDraws
  ScaledSums raw;                        // SumsRaw
  static constexpr bool kPauses = true;  // PausesOf

  SPECD_INLINE static Mask MaskOf(const uint32_t* words, const uint32_t* others, int32_t vocab_size,
                                  int32_t tile_index) {
    return {{words, others}, vocab_size, tile_index};
  }
  SPECD_INLINE static uint32_t StepsLeft(const Mask& mask) { return mask.StepsLeft(); }
};

// SetEach of a team, one element after another.
template <typename T, typename ElementOf, typename ValueOf>
SPECD_INLINE void SetInTurn(const T& team, int32_t i, int32_t end, const ElementOf& element_of,
                            const ValueOf& value_of, CpuTile* tile) {
  for (; i < end; ++i) {
    const int32_t element = element_of(i);
    if (element >= kTileSize) return;
    if (tile->Has(element / kLanes)) team.Set(element, value_of(i), tile);
  }
}

template <typename... Rest>
SPECD_INLINE int32_t CountOf(const CpuTile& first, const Rest&...) {
  return first.count;
}

// The steps that are present in any of the tiles, which belong to rows of one vocabulary:
//   for (const int32_t step : StepsOf(p, q)) ...
class StepsOf {
 public:
  class Iterator {
   public:
    SPECD_INLINE explicit Iterator(uint32_t rest) : rest_(rest) {}
    SPECD_INLINE int32_t operator*() const { return __builtin_ctz(rest_); }
    SPECD_INLINE Iterator& operator++() {
      rest_ &= rest_ - 1;
      return *this;
    }
    SPECD_INLINE bool operator!=(const Iterator& other) const { return rest_ != other.rest_; }

   private:
    uint32_t rest_;
  };

  template <typename... Tiles>
  SPECD_INLINE explicit StepsOf(const Tiles&... tiles) : steps_((tiles.present | ...)) {}
  SPECD_INLINE Iterator begin() const { return Iterator(steps_); }
  SPECD_INLINE Iterator end() const { return Iterator(0); }

 private:
  uint32_t steps_;
};

}  // namespace specd
