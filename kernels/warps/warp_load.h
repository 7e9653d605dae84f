// FetchSteps and FetchTile load a thread's elements of a tile into registers for WarpTeam: 8
// neighbouring elements of each step.
//
// They load words of 16 bytes, even if the row does not begin at a multiple of 16, and never a byte
// outside the row. The words of neighbouring threads form whole lines, so memory moves no byte in
// vain. If a row is shifted, a word that is fetched twice comes from the nearest cache.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/bodies/team.h"
#include "kernels/bodies/tiles.h"
#include "kernels/core/elements.h"

namespace specd {

namespace internal {

inline constexpr int32_t kGranuleBytes = 16;
inline constexpr int32_t kGranuleWords = kGranuleBytes / 4;

// The 32-bit words of a thread's elements of a step.
template <DType kDType>
inline constexpr int32_t kWordsPerThread = 8 * SizeBytes(kDType) / 4;

// REQUIRES: address is a multiple of 16.
SPECD_INLINE void LoadGranule(const char* address, uint32_t* words) {
#if defined(__CUDA_ARCH__)
  const uint4 granule = *reinterpret_cast<const uint4*>(address);
  words[0] = granule.x;
  words[1] = granule.y;
  words[2] = granule.z;
  words[3] = granule.w;
#else
  __builtin_memcpy(words, address, kGranuleBytes);
#endif
}

SPECD_INLINE int32_t BytesPastGranule(const char* address) {
  return static_cast<int32_t>(reinterpret_cast<uintptr_t>(address) % kGranuleBytes);
}

// The word that begins `bits` bits after the beginning of `low`, and ends in `high`.
SPECD_INLINE uint32_t Funnel(uint32_t low, uint32_t high, int32_t bits) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, static_cast<uint32_t>(bits));
#else
  return bits == 0 ? low : low >> bits | high << (32 - bits);
#endif
}

template <int32_t kNumWords>
SPECD_INLINE void LoadWords(const char* address, uint32_t* words) {
  SPECD_UNROLL
  for (int32_t i = 0; i < kNumWords; i += kGranuleWords) LoadGranule(address + 4 * i, words + i);
}

// The same from any address. All threads of a warp have the same distance from a granule, so they
// take the same branch.
template <int32_t kNumWords>
SPECD_INLINE void LoadShiftedWords(const char* address, uint32_t* words) {
  const int32_t past = BytesPastGranule(address);
  uint32_t all[kNumWords + kGranuleWords];
  LoadWords<kNumWords + kGranuleWords>(address - past, all);
  const int32_t bits = past % 4 * 8;
  switch (past / 4) {
    case 0:
      SPECD_UNROLL
      for (int32_t i = 0; i < kNumWords; ++i) words[i] = Funnel(all[i], all[i + 1], bits);
      break;
    case 1:
      SPECD_UNROLL
      for (int32_t i = 0; i < kNumWords; ++i) words[i] = Funnel(all[i + 1], all[i + 2], bits);
      break;
    case 2:
      SPECD_UNROLL
      for (int32_t i = 0; i < kNumWords; ++i) words[i] = Funnel(all[i + 2], all[i + 3], bits);
      break;
    default:
      SPECD_UNROLL
      for (int32_t i = 0; i < kNumWords; ++i) words[i] = Funnel(all[i + 3], all[i + 4], bits);
      break;
  }
}

// Turns words into the 8 floats that they hold.
template <DType kDType>
SPECD_INLINE void Widen(const uint32_t* words, float* values) {
  SPECD_UNROLL
  for (int32_t i = 0; i < 8; ++i) {
    if constexpr (kDType == DType::kFloat32) {
      values[i] = FloatOf(words[i]);
    } else {
      const uint32_t word = words[i / 2];
      const auto bits = static_cast<uint16_t>(i % 2 == 0 ? word : word >> 16);
      values[i] = kDType == DType::kBFloat16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
    }
  }
}

}  // namespace internal

// Fetches element `8 * lane + j` of a step into values[j], one by one; -inf after the row's end. No
// load depends on a branch, so all are requested before the first is waited for. REQUIRES: the row
// has an element in this step.
template <DType kDType>
SPECD_INLINE void FetchElements(const RowView& row, int32_t number, int32_t lane,
                                float (&values)[8]) {
  const int64_t first = int64_t{number} * kLanes;
  // The elements of this step and of later ones.
  const int32_t rest = row.vocab_size - number * kLanes;
  SPECD_UNROLL
  for (int32_t j = 0; j < 8; ++j) {
    const int32_t element = 8 * lane + j;
    values[j] = LoadElementAs<kDType>(row.data, first + (element < rest ? element : rest - 1));
  }
  SPECD_UNROLL
  for (int32_t j = 0; j < 8; ++j) values[j] = 8 * lane + j < rest ? values[j] : -kInfinity;
}

namespace internal {

// Fetches the steps that words of 16 bytes hold, one after another. Returns the other ones with
// elements of the row.
template <DType kDType, int32_t kNumSteps, typename NumberOf>
SPECD_INLINE uint32_t FetchWordsOfEach(const RowView& row, int32_t lane, uint32_t steps,
                                       const NumberOf& number_of, float (&values)[kNumSteps][8]) {
  constexpr int32_t kWords = internal::kWordsPerThread<kDType>;
  uint32_t by_element = 0;
  SPECD_UNROLL
  for (int32_t step = 0; step < kNumSteps; ++step) {
    const bool wanted = (steps >> step & 1u) != 0;
    const int32_t number = wanted ? number_of(step) : 0;
    const int32_t rest = wanted ? row.vocab_size - number * kLanes : 0;
    const char* const address = static_cast<const char*>(row.data) +
                                (int64_t{number} * kLanes + 8 * lane) * SizeBytes(kDType);
    const bool aligned = internal::BytesPastGranule(address) == 0;
    const bool inside = number > 0 && rest - kLanes >= 8;
    if (rest >= kLanes && (aligned || inside)) {
      uint32_t words[kWords];
      if (aligned) {
        internal::LoadWords<kWords>(address, words);
      } else {
        internal::LoadShiftedWords<kWords>(address, words);
      }
      internal::Widen<kDType>(words, values[step]);
    } else {
      by_element |= (rest > 0 ? 1u : 0u) << step;
      SPECD_UNROLL
      for (int32_t j = 0; j < 8; ++j) values[step][j] = -kInfinity;
    }
  }
  return by_element;
}

// The same with all steps requested before the first is looked at, which takes more registers.
template <DType kDType, int32_t kNumSteps, typename NumberOf>
SPECD_INLINE uint32_t FetchWords(const RowView& row, int32_t lane, uint32_t steps,
                                 const NumberOf& number_of, float (&values)[kNumSteps][8]) {
  constexpr int32_t kWords = internal::kWordsPerThread<kDType>;
  const char* const data = static_cast<const char*>(row.data) + 8 * lane * SizeBytes(kDType);
  const bool aligned = internal::BytesPastGranule(data) == 0;
  uint32_t words[kNumSteps][kWords];
  uint32_t by_word = 0;
  uint32_t by_element = 0;
  // No word is looked at before all are requested.
  SPECD_UNROLL
  for (int32_t step = 0; step < kNumSteps; ++step) {
    const bool wanted = (steps >> step & 1u) != 0;
    const int32_t number = wanted ? number_of(step) : 0;
    const int32_t rest = wanted ? row.vocab_size - number * kLanes : 0;
    const char* const address = data + int64_t{number} * kLanes * SizeBytes(kDType);
    const bool inside = number > 0 && rest - kLanes >= 8;
    if (rest >= kLanes && (aligned || inside)) {
      by_word |= 1u << step;
      if (aligned) {
        internal::LoadWords<kWords>(address, words[step]);
      } else {
        internal::LoadShiftedWords<kWords>(address, words[step]);
      }
    } else {
      by_element |= (rest > 0 ? 1u : 0u) << step;
      SPECD_UNROLL
      for (int32_t i = 0; i < kWords; ++i) words[step][i] = 0;
    }
  }
  SPECD_UNROLL
  for (int32_t step = 0; step < kNumSteps; ++step) {
    internal::Widen<kDType>(words[step], values[step]);
    const bool is_loaded = (by_word >> step & 1u) != 0;
    SPECD_UNROLL
    for (int32_t j = 0; j < 8; ++j) values[step][j] = is_loaded ? values[step][j] : -kInfinity;
  }
  return by_element;
}

}  // namespace internal

// Fetches the steps that are set in `steps`: bit s is step number_of(s) of the row. Elements of
// other steps, and those after the row's end, are -inf.
//
// The memory next to a row may belong to another row, or may not exist. If words of 16 bytes would
// reach over the row's ends, elements are therefore fetched one by one. A tile has at most three
// such steps, so they share one piece of code.
template <DType kDType, int32_t kNumSteps, typename NumberOf>
SPECD_INLINE void FetchSteps(const RowView& row, int32_t lane, uint32_t steps,
                             const NumberOf& number_of, float (&values)[kNumSteps][8]) {
  uint32_t by_element = 0;
  if constexpr (kNumSteps == kStepsPerTile) {
    by_element = internal::FetchWords<kDType>(row, lane, steps, number_of, values);
  } else {
    by_element = internal::FetchWordsOfEach<kDType>(row, lane, steps, number_of, values);
  }
  SPECD_NO_UNROLL
  for (int32_t step = 0; by_element >> step != 0; ++step) {
    if ((by_element >> step & 1u) == 0) continue;
    float fetched[8];
    FetchElements<kDType>(row, number_of(step), lane, fetched);
    SPECD_UNROLL
    for (int32_t s = 0; s < kNumSteps; ++s) {
      if (s != step) continue;
      SPECD_UNROLL
      for (int32_t j = 0; j < 8; ++j) values[s][j] = fetched[j];
    }
  }
}

// The same for a narrow row, by id.
template <DType kDType, int32_t kNumSteps, typename NumberOf>
SPECD_INLINE void FetchMapped(const RowView& row, int32_t lane, uint32_t steps,
                              const NumberOf& number_of, float (&values)[kNumSteps][8]) {
  SPECD_UNROLL
  for (int32_t step = 0; step < kNumSteps; ++step) {
    const bool wanted = (steps >> step & 1u) != 0;
    const TokenId first = wanted ? number_of(step) * kLanes + 8 * lane : 0;
    SPECD_UNROLL
    for (int32_t j = 0; j < 8; ++j) {
      const bool inside = wanted && first + j < row.vocab_size;
      const float x = LoadMappedAs<kDType>(row, inside ? first + j : 0);
      values[step][j] = inside ? x : -kInfinity;
    }
  }
}

// The same for any row.
template <int32_t kNumSteps, typename NumberOf>
SPECD_INLINE void FetchStepsOf(const RowView& row, int32_t lane, uint32_t steps,
                               const NumberOf& number_of, float (&values)[kNumSteps][8]) {
  const auto fetch = [&](auto of_type) {
    constexpr DType kDType = decltype(of_type)::value;
    if (row.columns == nullptr) {
      FetchSteps<kDType>(row, lane, steps, number_of, values);
    } else {
      FetchMapped<kDType>(row, lane, steps, number_of, values);
    }
  };
  switch (row.dtype) {
    case DType::kFloat32:
      return fetch(std::integral_constant<DType, DType::kFloat32>());
    case DType::kBFloat16:
      return fetch(std::integral_constant<DType, DType::kBFloat16>());
    case DType::kFloat16:
      return fetch(std::integral_constant<DType, DType::kFloat16>());
  }
}

// Fetches the steps of a tile. The words of all steps are requested at once.
template <DType kDType>
SPECD_HOT void FetchTile(const RowView& row, int32_t tile_index, int32_t lane, uint32_t steps,
                         float (&values)[kStepsPerTile][8]) {
  const auto number_of = [&](int32_t step) { return tile_index * kStepsPerTile + step; };
  if (row.columns != nullptr) return FetchMapped<kDType>(row, lane, steps, number_of, values);
  constexpr int32_t kWords = internal::kWordsPerThread<kDType>;
  const int64_t first = int64_t{tile_index} * kTileSize;
  // The elements of this tile and of later ones.
  const int32_t rest = row.vocab_size - tile_index * kTileSize;
  const char* const data =
      static_cast<const char*>(row.data) + (first + 8 * lane) * SizeBytes(kDType);
  const bool aligned = internal::BytesPastGranule(data) == 0;
  if (aligned && rest >= kTileSize && steps == kAllSteps) {
    uint32_t words[kStepsPerTile][kWords];
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      internal::LoadWords<kWords>(data + step * kLanes * SizeBytes(kDType), words[step]);
    }
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      internal::Widen<kDType>(words[step], values[step]);
    }
    return;
  }
  FetchSteps<kDType>(row, lane, steps, number_of, values);
}

// The words of a whole tile of a row in a 16-bit type, which lanes request while they work on the
// tile before.
class TileAhead {
 public:
  SPECD_INLINE bool Has(int32_t tile_index) const { return tile_index_ == tile_index; }

  // Requests the tile if words of 16 bytes hold it, and no other one.
  SPECD_INLINE void Fetch(const RowView& row, int32_t tile_index, int32_t lane) {
    const char* const data =
        static_cast<const char*>(row.data) + (int64_t{tile_index} * kTileSize + 8 * lane) * 2;
    const bool is_whole = row.vocab_size - tile_index * kTileSize >= kTileSize;
    const bool by_word = row.columns == nullptr && internal::BytesPastGranule(data) == 0;
    tile_index_ = -1;
    if (row.dtype == DType::kFloat32 || !is_whole || !by_word) return;
    tile_index_ = tile_index;
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      internal::LoadWords<kWords>(data + step * kLanes * 2, words_[step]);
    }
  }
  SPECD_INLINE void Take(DType dtype, float (&values)[kStepsPerTile][8]) const {
    if (dtype == DType::kBFloat16) {
      Widen<DType::kBFloat16>(values);
    } else {
      Widen<DType::kFloat16>(values);
    }
  }

 private:
  static constexpr int32_t kWords = internal::kWordsPerThread<DType::kBFloat16>;

  template <DType kDType>
  SPECD_INLINE void Widen(float (&values)[kStepsPerTile][8]) const {
    SPECD_UNROLL
    for (int32_t step = 0; step < kStepsPerTile; ++step) {
      internal::Widen<kDType>(words_[step], values[step]);
    }
  }

  int32_t tile_index_ = -1;
  uint32_t words_[kStepsPerTile][kWords];
};

}  // namespace specd
