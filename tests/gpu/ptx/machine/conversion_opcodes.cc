// PTX ISA, "Data Movement and Conversion Instructions: cvt".
//
// Whole numbers are cut or extended by the sign of the source's type. A source register may be
// wider than the source's type: its low bits count ("Operand Size Exceeding Instruction-Type
// Size").
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/gpu/ptx/machine/float_lanes.h"
#include "tests/gpu/ptx/machine/lane_functions.h"

namespace specd::ptx {

namespace {

// As cvt.f32.f16: without a table, so that the compiler can use vectors. IEEE 754 binary16: 1 sign
// bit, 5 of the exponent (bias 15), 10 of the fraction.
float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31;
  const uint32_t rest = half & 0x7FFFu;
  // As a float, the same bits are a number 2^112 times too small: the biases are 15 and 127.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  const bool is_finite = rest < 0x7C00u;
  const uint32_t special = rest == 0x7C00u ? 0x7F800000u : 0x7FFFFFFFu;
  const uint32_t magnitude = is_finite ? std::bit_cast<uint32_t>(scaled) : special;
  const bool is_nan = rest > 0x7C00u;
  return std::bit_cast<float>(is_nan ? special : sign | magnitude);
}

template <typename To, typename From>
void AddWhole(OpcodeTable* table, const std::string& name) {
  AddLanes<To, From>(table, {("cvt." + name).c_str()}, [](From a) { return static_cast<To>(a); });
  if constexpr (sizeof(From) < 8) {
    AddLanes<To, uint64_t>(table, {("cvt." + name + kOfWideRegister).c_str()},
                           [](uint64_t a) { return static_cast<To>(static_cast<From>(a)); });
  }
}

template <typename From>
void AddWholeOf(OpcodeTable* table, const std::string& from) {
  AddWhole<int16_t, From>(table, "s16." + from);
  AddWhole<uint16_t, From>(table, "u16." + from);
  AddWhole<int32_t, From>(table, "s32." + from);
  AddWhole<uint32_t, From>(table, "u32." + from);
  AddWhole<int64_t, From>(table, "s64." + from);
  AddWhole<uint64_t, From>(table, "u64." + from);
}

// To the nearest even.
template <typename From>
void AddFloatOf(OpcodeTable* table, const std::string& from) {
  AddLanes<float, From>(table, {("cvt.rn.f32." + from).c_str()},
                        [](From a) { return static_cast<float>(a); });
  AddLanes<double, From>(table, {("cvt.rn.f64." + from).c_str()},
                         [](From a) { return static_cast<double>(a); });
}

// .rzi: towards zero. A number that does not fit becomes the nearest one that does. NaN becomes 0
// if source and result have 32 bits; otherwise only the result's highest bit is set.
template <typename To, typename From>
struct Truncate {
  To operator()(From a) const {
    // The numbers of 64 bits have no largest one as a float: the next one has.
    const From above = std::ldexp(From{1}, std::numeric_limits<To>::digits);
    constexpr bool kNanIsZero = sizeof(From) == 4 && sizeof(To) == 4;
    if (IsNan(a)) {
      return static_cast<To>(kNanIsZero ? 0 : uint64_t{1} << (8 * sizeof(To) - 1));
    }
    if (a >= above) return std::numeric_limits<To>::max();
    if (a <= static_cast<From>(std::numeric_limits<To>::min())) {
      return std::numeric_limits<To>::min();
    }
    return static_cast<To>(a);
  }
};
template <typename From>
void AddTruncations(OpcodeTable* table, const std::string& from) {
  AddLanes<int32_t, From>(table, {("cvt.rzi.s32." + from).c_str()}, Truncate<int32_t, From>());
  AddLanes<uint32_t, From>(table, {("cvt.rzi.u32." + from).c_str()}, Truncate<uint32_t, From>());
  AddLanes<int64_t, From>(table, {("cvt.rzi.s64." + from).c_str()}, Truncate<int64_t, From>());
  AddLanes<uint64_t, From>(table, {("cvt.rzi.u64." + from).c_str()}, Truncate<uint64_t, From>());
}

}  // namespace

void AddConversionOpcodes(OpcodeTable* table) {
  AddWholeOf<int8_t>(table, "s8");
  AddWholeOf<uint8_t>(table, "u8");
  AddWholeOf<int16_t>(table, "s16");
  AddWholeOf<uint16_t>(table, "u16");
  AddWholeOf<int32_t>(table, "s32");
  AddWholeOf<uint32_t>(table, "u32");
  AddWholeOf<int64_t>(table, "s64");
  AddWholeOf<uint64_t>(table, "u64");
  AddFloatOf<int32_t>(table, "s32");
  AddFloatOf<uint32_t>(table, "u32");
  AddFloatOf<int64_t>(table, "s64");
  AddFloatOf<uint64_t>(table, "u64");
  AddTruncations<float>(table, "f32");
  AddTruncations<double>(table, "f64");
  AddLanes<float, uint16_t>(table, {"cvt.f32.f16"}, [](uint16_t a) { return HalfToFloat(a); });
  AddLanes<double, float>(table, {"cvt.f64.f32"}, [](float a) { return static_cast<double>(a); });
  AddLanes<float, double>(table, {"cvt.rn.f32.f64"},
                          [](double a) { return Canonical(static_cast<float>(a)); });
}

}  // namespace specd::ptx
