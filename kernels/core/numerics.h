// The numerics give every processor the same bits for exp2, log2, tanh, quotients and integer
// weights.
//
// Only the fused multiply-add calls libm, and IEEE 754 defines its result to the bit. The same
// source therefore gives the same bits under any compiler, vector width or GPU, in round-to-nearest
// with denormals on (kernels/core/fp_environment.h). Error bounds: docs/ALGORITHMS.md, "Numbers".
// Pure functions; host and device.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"

namespace specd {

SPECD_INLINE uint32_t BitsOf(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return __builtin_bit_cast(uint32_t, x);
#endif
}

SPECD_INLINE float FloatOf(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

// A fused multiply-add, which rounds once. The builtin is an instruction if the target has one, and
// otherwise a call of libm's correctly rounded fmaf.
SPECD_INLINE float Fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}
SPECD_INLINE double Fma(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

inline constexpr float kInfinity = __builtin_inff();
SPECD_INLINE bool IsNan(float x) { return x != x; }

// The larger of two floats; NaN if one is NaN; either of two zeros.
SPECD_INLINE float LargerOrNan(float a, float b) {
#if defined(__CUDA_ARCH__)
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  const float larger = b > a ? b : a;
  return IsNan(b) ? b : larger;
#endif
}

// The larger of two floats. If a is NaN, it returns b. Of two zeros it returns either one.
// REQUIRES: b is not NaN.
SPECD_INLINE float LargerNumber(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);  // one instruction
#else
  return a > b ? a : b;
#endif
}

SPECD_INLINE float Select(bool condition, float yes, float no) { return condition ? yes : no; }

// The element function that changes nothing. A team may recognise Identity and leave a row in
// place.
struct Identity {
  template <typename Value>
  SPECD_INLINE Value operator()(Value x) const {
    return x;
  }
};

// max(x, 0), and +0 for NaN.
SPECD_INLINE float PositivePart(float x) { return x > 0.0f ? x : 0.0f; }

// 2^x for x <= 0 within 1 ulp: exactly 1 at 0; 0 below -126, so no result is denormal; 0 for NaN.
// The function has no branch, so compilers can vectorise it.
//
// x = n + f with n the nearest integer; 2^f = 1 + f*g(f), g a minimax polynomial for |f| <= 1/2
// with relative error 2.0e-9.
SPECD_INLINE float Exp2(float x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x + kRounder;
  const float f = x - (shifted - kRounder);
  float g = 0x1.41fbc6p-13f;
  g = Fma(g, f, 0x1.5f3e52p-10f);
  g = Fma(g, f, 0x1.3b2d4cp-7f);
  g = Fma(g, f, 0x1.c6aee8p-5f);
  g = Fma(g, f, 0x1.ebfbdcp-3f);
  g = Fma(g, f, 0x1.62e430p-1f);
  const float mantissa = Fma(g, f, 1.0f);
  const float scaled = FloatOf(BitsOf(mantissa) + (BitsOf(shifted) << 23));
  return x >= -126.0f ? scaled : 0.0f;
}

// log2(x) for positive normal x, within 2 ulp, and exact at powers of two.
//
// x = 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); log2(1 + f) = f*h(f), h minimax with
// relative error 4.1e-9.
SPECD_INLINE float Log2(float x) {
  constexpr uint32_t kSqrtHalfBits = 0x3F3504F3u;
  const uint32_t bits = BitsOf(x);
  const int32_t exponent = static_cast<int32_t>(bits - kSqrtHalfBits) >> 23;
  const float f = FloatOf(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  float h = -0x1.c259aep-4f;
  h = Fma(h, f, 0x1.7d4904p-3f);
  h = Fma(h, f, -0x1.874becp-3f);
  h = Fma(h, f, 0x1.a305b2p-3f);
  h = Fma(h, f, -0x1.eabc88p-3f);
  h = Fma(h, f, 0x1.277e36p-2f);
  h = Fma(h, f, -0x1.715a76p-2f);
  h = Fma(h, f, 0x1.ec7096p-2f);
  h = Fma(h, f, -0x1.715470p-1f);
  h = Fma(h, f, 0x1.715476p+0f);
  return Fma(h, f, static_cast<float>(exponent));
}

// Divide(a, b) is a / b, correctly rounded, without a call on a GPU. There the operator calls a
// function if an operand is very large or small. The possible call alone costs its caller the
// registers of that function, and the tile pass has none to spare (kernels/warps/tile_pass.h). Both
// ways are therefore written out here. The hardware's approximation of 1 / b is an argument, so
// tests can run both ways anywhere.
namespace internal {

// A middling float is far from the limits of a float, and so are the quotients of middling floats.
SPECD_INLINE bool IsMiddling(float x) {
  const uint32_t size = BitsOf(x) & 0x7FFFFFFFu;
  return size >= BitsOf(0x1p-60f) && size <= BitsOf(0x1p60f);
}
// Just below a power of two, an inverse with an error of an ulp may give a wrong quotient.
SPECD_INLINE bool IsMiddlingDivisor(float x) {
  return IsMiddling(x) && (BitsOf(x) & 0x7FFFFFu) < 0x7FFFF0u;
}

// The steps of the GPU's operator, given an inverse that is within an ulp of 1 / b. The remainder
// is exact, so only the last rounding counts. A quotient of 0 may be a zero of either sign.
// REQUIRES: a is middling or 0, and b a middling divisor.
SPECD_INLINE float BetterInverse(float b, float inverse) {
  return Fma(Fma(-b, inverse, 1.0f), inverse, inverse);
}
SPECD_INLINE float QuotientOfMiddling(float a, float b, float inverse) {
  const float better = BetterInverse(b, inverse);
  const float quotient = a * better;
  return Fma(Fma(-b, quotient, a), better, quotient);
}

// The quotient of any floats, given an inverse that is within 2^-10 of 1 / b. If b is 0, the
// inverse is inf with b's sign; if b is inf, the inverse is 0 with b's sign. A double has room for
// all quotients of two floats. If a double holds the quotient exactly, the result is exact. Any
// other quotient is further from the middle m between two floats than the error, since a - m * b is
// a whole number of units. The last step therefore rounds it correctly.
SPECD_INLINE float QuotientByDoubles(double a, double b, double inverse) {
  const double rough = a * inverse;
  // rough is inf, NaN, or a zero whose sign would be lost below.
  if (rough == 0.0 || rough - rough != 0.0) return static_cast<float>(rough);
  double better = inverse;
  for (int step = 0; step < 2; ++step) better = Fma(Fma(-b, better, 1.0), better, better);
  const double quotient = a * better;
  return static_cast<float>(Fma(Fma(-b, quotient, a), better, quotient));
}

}  // namespace internal

// REQUIRES: a is middling or 0, and b a middling divisor, as above.
SPECD_INLINE float DivideMiddling(float a, float b) {
#if defined(__CUDA_ARCH__)
  float inverse;
  asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return internal::QuotientOfMiddling(a, b, inverse);
#else
  return a / b;
#endif
}
SPECD_INLINE float Divide(float a, float b) {
#if defined(__CUDA_ARCH__)
  if (internal::IsMiddling(a) && internal::IsMiddlingDivisor(b)) return DivideMiddling(a, b);
  double inverse;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(static_cast<double>(b)));
  return internal::QuotientByDoubles(a, b, inverse);
#else
  return a / b;
#endif
}

// tanh(x) within 3 ulp; +-1 for +-inf. REQUIRES: x is not NaN.
//
// Near 0, (1 - e) / (1 + e) would cancel. There the result is x + x*z*h(z) with z = x^2 and h
// minimax for |x| <= 0.6 with relative error 4.2e-9.
SPECD_INLINE float Tanh(float x) {
  constexpr float kMinusTwoLog2E = -0x1.715476p+1f;
  const float size = Select(x < 0.0f, 0.0f - x, x);
  const float e = Exp2(size * kMinusTwoLog2E);
  const float far = DivideMiddling(1.0f - e, 1.0f + e);  // e is below 1/2 if `far` is used
  const float z = x * x;
  float h = 0x1.36bdb2p-9f;
  h = Fma(h, z, -0x1.1394cap-7f);
  h = Fma(h, z, 0x1.64fad8p-6f);
  h = Fma(h, z, -0x1.ba0d94p-5f);
  h = Fma(h, z, 0x1.1110f6p-3f);
  h = Fma(h, z, -0x1.555556p-2f);
  const float near = Fma(x * z, h, x);
  return Select(size < 0.6f, near, Select(x < 0.0f, 0.0f - far, far));
}

// Floats in ascending order as integers: a < b (both not NaN) exactly if OrderedKey(a) <
// OrderedKey(b). The exceptions are -0 and +0, which are neighbours here.
SPECD_INLINE uint32_t OrderedKey(float x) {
  const uint32_t bits = BitsOf(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
SPECD_INLINE float FloatOfKey(uint32_t key) {
  return FloatOf((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

// The exponent of a positive finite float: 2^E <= w < 2^(E+1); denormals count as E = -126.
SPECD_INLINE int32_t ExponentOf(float w) {
  const int32_t biased = static_cast<int32_t>((BitsOf(w) >> 23) & 0xFFu);
  return (biased == 0 ? 1 : biased) - 127;
}

// Integer weights keep this many bits below the largest weight in scope.
inline constexpr int32_t kWeightBits = 40;

// trunc(w * 2^(40 - exponent)) for finite w >= 0 with ExponentOf(w) <= exponent: below 2^41. The
// integer is made from the bits, so no intermediate can overflow or round. For any other w the
// result is some integer below 2^41.
SPECD_INLINE uint64_t IntegerWeight(float w, int32_t exponent) {
  constexpr int32_t kMantissaBits = 23;
  const uint32_t bits = BitsOf(w);
  const uint32_t hidden = (bits & 0x7F800000u) == 0 ? 0u : 1u << kMantissaBits;
  const uint64_t mantissa = (bits & ((1u << kMantissaBits) - 1)) | hidden;
  // The number of bits below the largest weight.
  const uint32_t down = static_cast<uint32_t>(exponent - ExponentOf(w));
  const uint64_t wide = mantissa << (kWeightBits - kMantissaBits);
  return down > kWeightBits ? 0 : wide >> down;
}

// floor(a * b / c) through 128 bits. REQUIRES: the quotient fits 64 bits, c > 0.
SPECD_INLINE uint64_t MulDiv(uint64_t a, uint64_t b, uint64_t c) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b / c);
}

namespace internal {

// The product of doubles is within 1 of the quotient, because it is below 2^52. The difference of
// the integers, modulo 2^64, then says which of three it is.
SPECD_INLINE uint64_t MulDivByDoubles(uint64_t a, uint64_t b, uint64_t c) {
  const double share = static_cast<double>(a) / static_cast<double>(c);
  const auto near = static_cast<uint64_t>(share * static_cast<double>(b));
  const auto rest = static_cast<int64_t>(a * b - near * c);
  return near + (rest >= static_cast<int64_t>(c) ? 1 : 0) - (rest < 0 ? 1 : 0);
}

}  // namespace internal

// MulDiv for a < c <= 2^41 and b < 2^52. A GPU divides 128 bits in a loop, and doubles in a fifth
// of the time.
SPECD_INLINE uint64_t MulDivOfWeights(uint64_t a, uint64_t b, uint64_t c) {
#if defined(__CUDA_ARCH__)
  return internal::MulDivByDoubles(a, b, c);
#else
  return MulDiv(a, b, c);
#endif
}

// MulDiv, rounded up.
SPECD_INLINE uint64_t MulDivUp(uint64_t a, uint64_t b, uint64_t c) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b + (c - 1)) / c);
}

}  // namespace specd
