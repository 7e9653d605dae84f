// LoadElement reads one element of a row for the teams, and turns 16-bit formats into floats.
//
// Every 16-bit value is a float, so both conversions are exact for every pattern. A NaN stays a
// NaN. Compilers can vectorise the operations.
#pragma once

#include <cstdint>

#include "kernels/core/numerics.h"
#include "kernels/core/types.h"

namespace specd {

SPECD_INLINE float BFloat16ToFloat(uint16_t bits) { return FloatOf(uint32_t{bits} << 16); }

SPECD_INLINE float Float16ToFloat(uint16_t bits) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7FFFu;
  // Normal numbers move to the float's place and re-bias; infinity and NaN need the top exponent.
  const uint32_t normal = (magnitude << 13) + (magnitude >= 0x7C00u ? 0x70000000u : 0x38000000u);
  // A denormal is magnitude * 2^-24, and that product is exact.
  const uint32_t denormal = BitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  return FloatOf(sign | (magnitude < 0x0400u ? denormal : normal));
#endif
}

namespace internal {

// Host memory comes from outside, so its alignment and effective type are unknown. On a GPU, device
// rows are aligned to their elements, and memcpy would read byte by byte.
template <typename Bits>
SPECD_INLINE Bits LoadBits(const void* row, int64_t index) {
#if defined(__CUDA_ARCH__)
  return static_cast<const Bits*>(row)[index];
#else
  Bits bits;
  __builtin_memcpy(&bits, static_cast<const char*>(row) + index * int64_t{sizeof(Bits)},
                   sizeof(Bits));
  return bits;
#endif
}

}  // namespace internal

// One element of a row of type kDType. REQUIRES: index is inside the row.
template <DType kDType>
SPECD_INLINE float LoadElementAs(const void* row, int64_t index) {
  if constexpr (kDType == DType::kFloat32) {
    return internal::LoadBits<float>(row, index);
  } else {
    const uint16_t bits = internal::LoadBits<uint16_t>(row, index);
    return kDType == DType::kBFloat16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
  }
}

// The element of an id that a narrow row has no column for: q is 0 there.
SPECD_INLINE float AbsentElement(const RowView& row) {
  return row.rules.kind == RowKind::kLogits ? -kInfinity : 0.0f;
}

// The element of an id in a narrow row. The load does not depend on a branch.
template <DType kDType>
SPECD_INLINE float LoadMappedAs(const RowView& row, TokenId id) {
  const int32_t column = row.columns[id];
  const float x = LoadElementAs<kDType>(row.data, column < 0 ? 0 : column);
  return column < 0 ? AbsentElement(row) : x;
}

// The element of an id. REQUIRES: id is in the vocabulary.
SPECD_INLINE float LoadElement(const RowView& row, TokenId id) {
  const int32_t index = row.columns == nullptr ? id : row.columns[id];
  if (index < 0) return AbsentElement(row);
  switch (row.dtype) {
    case DType::kFloat32:
      return LoadElementAs<DType::kFloat32>(row.data, index);
    case DType::kBFloat16:
      return LoadElementAs<DType::kBFloat16>(row.data, index);
    case DType::kFloat16:
      break;
  }
  return LoadElementAs<DType::kFloat16>(row.data, index);
}

}  // namespace specd
