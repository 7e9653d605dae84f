// WarpLanes exchanges values between the 32 lanes of a warp for WarpTeam.
//
// It uses the Shuffle, LargestOfWarp and SumOfWarp of a Thread (warp_team.h). All lanes call each
// function together.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/core/elements.h"
#include "kernels/core/numerics.h"

namespace specd {

template <typename Thread>
class WarpLanes {
 public:
  static constexpr int32_t kWarpSize = 32;

  // Sums the lanes as the tree of tiles.h; each thread brings the sums of its 8 neighbouring
  // virtual lanes.
  SPECD_INLINE float SumOfLanes(const float (&sum)[8]) {
    float total = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    SPECD_UNROLL
    for (int32_t mask = 1; mask < kWarpSize; mask *= 2) total += ShuffleXor(total, mask);
    return total;
  }

 protected:
  SPECD_INLINE explicit WarpLanes(const Thread& thread) : thread_(thread) {}

  SPECD_INLINE float ShuffleXor(float value, int32_t mask) {
    return FloatOf(thread_.Shuffle(BitsOf(value), thread_.lane() ^ mask));
  }
  SPECD_INLINE int32_t ShuffleValue(int32_t value, int32_t source) {
    return static_cast<int32_t>(thread_.Shuffle(static_cast<uint32_t>(value), source));
  }
  SPECD_INLINE uint64_t ShuffleValue(uint64_t value, int32_t source) {
    const uint64_t high = thread_.Shuffle(static_cast<uint32_t>(value >> 32), source);
    const uint64_t low = thread_.Shuffle(static_cast<uint32_t>(value), source);
    return (high << 32) | low;
  }

  SPECD_INLINE double ShuffleValue(double value, int32_t source) {
    uint64_t bits;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    bits = ShuffleValue(bits, source);
    __builtin_memcpy(&value, &bits, sizeof(bits));
    return value;
  }

  // A value of several words.
  template <typename Value>
  SPECD_INLINE Value ShuffleWords(const Value& value, int32_t source) const {
    static_assert(std::has_unique_object_representations_v<Value>, "no gaps between members");
    uint32_t words[sizeof(Value) / sizeof(uint32_t)];
    __builtin_memcpy(words, &value, sizeof(Value));
    for (uint32_t& word : words) word = thread_.Shuffle(word, source);
    Value shuffled;
    __builtin_memcpy(&shuffled, words, sizeof(Value));
    return shuffled;
  }

  // Sums integers, whose order does not matter.
  SPECD_INLINE int32_t SumOfWarp(int32_t value) {
    return static_cast<int32_t>(thread_.SumOfWarp(static_cast<uint32_t>(value)));
  }
  // Sums in two parts of 27 bits; 32 such parts fit in 32 bits. REQUIRES: value < 2^54. The
  // weights of a lane are below 2^47 together: 64 elements of 41 bits.
  SPECD_INLINE uint64_t SumOfWarp(uint64_t value) {
    constexpr int32_t kPartBits = 27;
    constexpr uint32_t kPart = (1u << kPartBits) - 1;
    const uint64_t low = thread_.SumOfWarp(static_cast<uint32_t>(value) & kPart);
    const uint64_t high = thread_.SumOfWarp(static_cast<uint32_t>(value >> kPartBits));
    return low + (high << kPartBits);
  }

  template <typename Value>
  SPECD_INLINE Value InclusiveScan(Value value) {
    for (int32_t distance = 1; distance < kWarpSize; distance *= 2) {
      const int32_t source = thread_.lane() - distance;
      const Value other = ShuffleValue(value, source < 0 ? thread_.lane() : source);
      value += source < 0 ? 0 : other;
    }
    return value;
  }

  // As integers, floats of one sign are in order. Once the bits below the sign of negative floats
  // are inverted, all floats are in order. A NaN of positive sign is above all others.
  SPECD_INLINE float LargestOfLanes(float max) {
    const auto bits = static_cast<int32_t>(BitsOf(IsNan(max) ? FloatOf(0x7FC00000u) : max));
    const int32_t largest = thread_.LargestOfWarp(bits ^ (bits >> 31 & 0x7FFFFFFF));
    // The order decides which of two zeros is found. The sum with +0 is +0 for both.
    return FloatOf(static_cast<uint32_t>(largest ^ (largest >> 31 & 0x7FFFFFFF))) + 0.0f;
  }

  SPECD_INLINE static int32_t LowestBit(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __ffs(static_cast<int>(bits)) - 1;
#else
    return __builtin_ctz(bits);
#endif
  }

  Thread thread_;
};

}  // namespace specd
