// GumbelOf gives the noise of SGLang's deterministic mode: a token is the argmax of ln p + noise.
//
// docs/ALGORITHMS.md, "SGLang's generator". The noise of an id is a pure function of (seed;
// position, column). Its hash is SGLang's bit for bit; the logarithms are specd's own, so that
// every processor has the same bits. Pure functions; host and device.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"

namespace specd {

// MurmurHash3_x86_32 with seed 0 of the 16 bytes (seed, position, column), little-endian.
SPECD_INLINE uint32_t SglangHash(uint64_t seed, uint32_t position, uint32_t column) {
  const auto rotate = [](uint32_t x, int bits) { return x << bits | x >> (32 - bits); };
  const uint32_t words[] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                            position, column};
  uint32_t hash = 0;
  for (const uint32_t word : words) {
    hash ^= rotate(word * 0xCC9E2D51u, 15) * 0x1B873593u;
    hash = rotate(hash, 13) * 5 + 0xE6546B64u;
  }
  hash ^= 16;  // the number of bytes
  hash = (hash ^ hash >> 16) * 0x85EBCA6Bu;
  hash = (hash ^ hash >> 13) * 0xC2B2AE35u;
  return hash ^ hash >> 16;
}

// ln x for positive normal x, within 3 ulp.
//
// x = 2^e * m with m in [sqrt(1/2), sqrt(2)); ln m = 2 artanh(s) with s = (m - 1) / (m + 1), as the
// series s + s^3 / 3 + s^5 / 5 + ..., whose rest is below 2^-55 of it.
SPECD_INLINE double Ln(double x) {
  constexpr uint64_t kSqrtHalfBits = 0x3FE6A09E667F3BCDu;
#if defined(__CUDA_ARCH__)
  const auto bits = static_cast<uint64_t>(__double_as_longlong(x));
#else
  const auto bits = __builtin_bit_cast(uint64_t, x);
#endif
  const int64_t exponent = static_cast<int64_t>(bits - kSqrtHalfBits) >> 52;
  const uint64_t mantissa_bits = bits - (static_cast<uint64_t>(exponent) << 52);
#if defined(__CUDA_ARCH__)
  const double m = __longlong_as_double(static_cast<int64_t>(mantissa_bits));
#else
  const auto m = __builtin_bit_cast(double, mantissa_bits);
#endif
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 1.0 / 23;
  for (int n = 21; n >= 3; n -= 2) series = series * z + 1.0 / n;
  const auto e = static_cast<double>(exponent);
  constexpr double kLn2High = 0x1.62e42fefa38p-1;  // e * kLn2High is exact
  constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  const double rest = 2.0 * s * (z * series) + e * kLn2Low;
  return e * kLn2High + (2.0 * s + rest);
}

// The largest noise: SGLang holds -ln x at the spacing of the hashes.
inline constexpr double kGumbelMax = 0x1.62e42fefa39efp+4;  // 32 ln 2

SPECD_INLINE double GumbelOfHash(uint32_t hash) {
  constexpr double kLargest = 0x1.fffffffffffffp+1023;
  constexpr double kSpacing = 0x1p-32;
  if (hash == 0) return 0.0 - Ln(kLargest);
  const double y = Ln(static_cast<double>(hash) / 4294967295.0);
  return 0.0 - Ln(y > 0.0 - kSpacing ? kSpacing : 0.0 - y);
}

SPECD_INLINE double GumbelOf(uint64_t seed, uint32_t position, uint32_t column) {
  return GumbelOfHash(SglangHash(seed, position, column));
}

}  // namespace specd
