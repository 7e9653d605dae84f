// SimdFloat is a register of floats for the element functions of kernels/bodies, which use it like
// a float.
//
// A value type over Google Highway: + - * / and comparisons among SimdFloat and float, Fma, and the
// functions of numerics.h. Every lane has the bits of the scalar function. A comparison gives a
// SimdMask, which Select takes; masks are combined with & and |.
//
// Only files that are compiled for one instruction set, with flags of their own, may include this
// header (kernels/CMakeLists.txt). Highway takes the flags as its target, which has to be AVX2 with
// FMA, or AVX-512. All code here lies in a namespace named after the target and is inlined. No
// function is therefore one entity in two such files. Pure functions.
#pragma once

#include <cstdint>

#include "kernels/core/numerics.h"

// One target for each file, without instructions outside the flags.
#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLE_PCLMUL_AES
#include <hwy/highway.h>

#if !HWY_NATIVE_FMA
#error "Highway's multiply-add is rounded twice on this target: compile for AVX2 and FMA, or more"
#endif

namespace specd {
inline namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Int32Tag = hn::RebindToSigned<FloatTag>;
using Uint32Tag = hn::RebindToUnsigned<FloatTag>;

inline constexpr int32_t kSimdWidth = HWY_LANES(float);

class SimdMask {
 public:
  using Raw = hn::Mask<FloatTag>;

  SPECD_INLINE explicit SimdMask(Raw value) : raw(value) {}

  friend SPECD_INLINE SimdMask operator&(SimdMask a, SimdMask b) {
    return SimdMask(hn::And(a.raw, b.raw));
  }
  friend SPECD_INLINE SimdMask operator|(SimdMask a, SimdMask b) {
    return SimdMask(hn::Or(a.raw, b.raw));
  }
  // The operators evaluate both sides, as lanes always do.
  friend SPECD_INLINE SimdMask operator&&(SimdMask a, SimdMask b) { return a & b; }
  friend SPECD_INLINE SimdMask operator||(SimdMask a, SimdMask b) { return a | b; }
  friend SPECD_INLINE SimdMask operator!(SimdMask a) { return SimdMask(hn::Not(a.raw)); }

  Raw raw;
};

class SimdFloat {
 public:
  using Raw = hn::Vec<FloatTag>;

  SimdFloat() = default;  // no value
  SPECD_INLINE explicit SimdFloat(Raw value) : raw(value) {}
  // Implicit, so that expressions may mix floats and vectors.
  SPECD_INLINE SimdFloat(float value) : raw(hn::Set(FloatTag(), value)) {}

  friend SPECD_INLINE SimdFloat operator+(SimdFloat a, SimdFloat b) {
    return SimdFloat(hn::Add(a.raw, b.raw));
  }
  friend SPECD_INLINE SimdFloat operator-(SimdFloat a, SimdFloat b) {
    return SimdFloat(hn::Sub(a.raw, b.raw));
  }
  friend SPECD_INLINE SimdFloat operator*(SimdFloat a, SimdFloat b) {
    return SimdFloat(hn::Mul(a.raw, b.raw));
  }
  friend SPECD_INLINE SimdFloat operator/(SimdFloat a, SimdFloat b) {
    return SimdFloat(hn::Div(a.raw, b.raw));
  }
  friend SPECD_INLINE SimdFloat operator-(SimdFloat a) { return SimdFloat(hn::Neg(a.raw)); }

  friend SPECD_INLINE SimdMask operator<(SimdFloat a, SimdFloat b) {
    return SimdMask(hn::Lt(a.raw, b.raw));
  }
  friend SPECD_INLINE SimdMask operator<=(SimdFloat a, SimdFloat b) {
    return SimdMask(hn::Le(a.raw, b.raw));
  }
  friend SPECD_INLINE SimdMask operator>(SimdFloat a, SimdFloat b) {
    return SimdMask(hn::Gt(a.raw, b.raw));
  }
  friend SPECD_INLINE SimdMask operator>=(SimdFloat a, SimdFloat b) {
    return SimdMask(hn::Ge(a.raw, b.raw));
  }
  friend SPECD_INLINE SimdMask operator==(SimdFloat a, SimdFloat b) {
    return SimdMask(hn::Eq(a.raw, b.raw));
  }
  // Highway's Ne is false for NaN.
  friend SPECD_INLINE SimdMask operator!=(SimdFloat a, SimdFloat b) { return !(a == b); }

  Raw raw;
};

SPECD_INLINE SimdFloat Fma(SimdFloat a, SimdFloat b, SimdFloat c) {
  return SimdFloat(hn::MulAdd(a.raw, b.raw, c.raw));
}

SPECD_INLINE SimdFloat Select(SimdMask condition, SimdFloat yes, SimdFloat no) {
  return SimdFloat(hn::IfThenElse(condition.raw, yes.raw, no.raw));
}

// If the first operand is NaN, or both are zero, the hardware's maximum is its second operand. The
// scalar function gives the same.
SPECD_INLINE SimdFloat PositivePart(SimdFloat x) {
  return SimdFloat(hn::Max(x.raw, hn::Zero(FloatTag())));
}

SPECD_INLINE hn::Vec<Uint32Tag> BitsOf(SimdFloat x) { return hn::BitCast(Uint32Tag(), x.raw); }
SPECD_INLINE SimdFloat FloatOf(hn::Vec<Uint32Tag> bits) {
  return SimdFloat(hn::BitCast(FloatTag(), bits));
}

// The same steps as in Exp2(float), where they are explained. AVX-512 rounds, scales by a power of
// two and masks in one instruction each. RoundedForExp2 is the nearest integer there, and elsewhere
// that plus the rounder, whose low bits are the exponent.
SPECD_INLINE SimdFloat RoundedForExp2(SimdFloat x) {
#if HWY_TARGET <= HWY_AVX3
  return SimdFloat(SimdFloat::Raw{
      _mm512_roundscale_ps(x.raw.raw, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)});
#else
  return x + 12582912.0f;
#endif
}
SPECD_INLINE SimdFloat FractionForExp2(SimdFloat x, SimdFloat rounded) {
#if HWY_TARGET <= HWY_AVX3
  return x - rounded;
#else
  return x - (rounded - 12582912.0f);
#endif
}
SPECD_INLINE SimdFloat ScaledForExp2(SimdFloat x, SimdFloat mantissa, SimdFloat rounded) {
#if HWY_TARGET <= HWY_AVX3
  return SimdFloat(SimdFloat::Raw{
      _mm512_maskz_scalef_ps((x >= -126.0f).raw.raw, mantissa.raw.raw, rounded.raw.raw)});
#else
  const auto scaled = hn::Add(BitsOf(mantissa), hn::ShiftLeft<23>(BitsOf(rounded)));
  return FloatOf(hn::IfThenElseZero(hn::RebindMask(Uint32Tag(), (x >= -126.0f).raw), scaled));
#endif
}

// g of Exp2(float) times f, plus 1, for registers and blocks of them.
template <typename Value>
SPECD_INLINE Value MantissaOfExp2(const Value& f) {
  Value g = 0x1.41fbc6p-13f;
  g = Fma(g, f, 0x1.5f3e52p-10f);
  g = Fma(g, f, 0x1.3b2d4cp-7f);
  g = Fma(g, f, 0x1.c6aee8p-5f);
  g = Fma(g, f, 0x1.ebfbdcp-3f);
  g = Fma(g, f, 0x1.62e430p-1f);
  return Fma(g, f, 1.0f);
}

SPECD_INLINE SimdFloat Exp2(SimdFloat x) {
  const SimdFloat rounded = RoundedForExp2(x);
  return ScaledForExp2(x, MantissaOfExp2(FractionForExp2(x, rounded)), rounded);
}

// The same steps as in Log2(float).
SPECD_INLINE SimdFloat Log2(SimdFloat x) {
  const auto bits = BitsOf(x);
  const auto above = hn::Sub(bits, hn::Set(Uint32Tag(), 0x3F3504F3u));
  const auto exponent = hn::ShiftRight<23>(hn::BitCast(Int32Tag(), above));
  const auto shifted = hn::BitCast(Uint32Tag(), hn::ShiftLeft<23>(exponent));
  const SimdFloat f = FloatOf(hn::Sub(bits, shifted)) - 1.0f;
  SimdFloat h = -0x1.c259aep-4f;
  h = Fma(h, f, 0x1.7d4904p-3f);
  h = Fma(h, f, -0x1.874becp-3f);
  h = Fma(h, f, 0x1.a305b2p-3f);
  h = Fma(h, f, -0x1.eabc88p-3f);
  h = Fma(h, f, 0x1.277e36p-2f);
  h = Fma(h, f, -0x1.715a76p-2f);
  h = Fma(h, f, 0x1.ec7096p-2f);
  h = Fma(h, f, -0x1.715470p-1f);
  h = Fma(h, f, 0x1.715476p+0f);
  return Fma(h, f, SimdFloat(hn::ConvertTo(FloatTag(), exponent)));
}

SPECD_INLINE SimdFloat Divide(SimdFloat a, SimdFloat b) { return a / b; }

// The same steps as in Tanh(float).
SPECD_INLINE SimdFloat Tanh(SimdFloat x) {
  constexpr float kMinusTwoLog2E = -0x1.715476p+1f;
  const SimdFloat size = Select(x < 0.0f, 0.0f - x, x);
  const SimdFloat e = Exp2(size * kMinusTwoLog2E);
  const SimdFloat far = (1.0f - e) / (1.0f + e);
  const SimdFloat z = x * x;
  SimdFloat h = 0x1.36bdb2p-9f;
  h = Fma(h, z, -0x1.1394cap-7f);
  h = Fma(h, z, 0x1.64fad8p-6f);
  h = Fma(h, z, -0x1.ba0d94p-5f);
  h = Fma(h, z, 0x1.1110f6p-3f);
  h = Fma(h, z, -0x1.555556p-2f);
  const SimdFloat near = Fma(x * z, h, x);
  return Select(size < 0.6f, near, Select(x < 0.0f, 0.0f - far, far));
}

}  // namespace HWY_NAMESPACE
}  // namespace specd
