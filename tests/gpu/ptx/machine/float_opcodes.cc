// PTX ISA, "Floating-Point Instructions".
//
// Results of 32 bits that are NaN are the canonical one, 0x7FFFFFFF. Denormals are kept, except by
// .ftz. Without .rn, ptxas may fuse a product and a sum: add, sub and mul are known with .rn alone.
#include <cmath>
#include <limits>

#include "tests/gpu/ptx/machine/float_lanes.h"
#include "tests/gpu/ptx/machine/lane_functions.h"
#include "tests/gpu/ptx/machine/warp.h"

namespace specd::ptx {

namespace {

template <typename Value>
void AddRounded(OpcodeTable* table, const std::string& type) {
  const auto add = [&]<typename Function>(const char* name, Function function) {
    AddLanes<Value, Value, Value>(table, {(name + (".rn." + type)).c_str()}, function);
  };
  // "add", "sub", "mul", "div", "fma", "rcp": round to the nearest even.
  add("add", [](Value a, Value b) { return CanonicalOf(a, a + b); });
  add("sub", [](Value a, Value b) { return Canonical(a - b); });
  add("mul", [](Value a, Value b) { return CanonicalOf(a, a * b); });
  add("div", [](Value a, Value b) { return Canonical(a / b); });
  AddLanes<Value, Value, Value, Value>(
      table, {("fma.rn." + type).c_str()},
      [](Value a, Value b, Value c) { return Canonical(std::fma(a, b, c)); });
  AddLanes<Value, Value>(table, {("rcp.rn." + type).c_str()},
                         [](Value a) { return Canonical(Value{1} / a); });
}

// +0 is larger than -0.
template <typename Value>
Value Larger(Value a, Value b) {
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <typename Value>
Value Smaller(Value a, Value b) {
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

// "max", "min": a number wins over NaN. With .NaN, NaN wins.
template <typename Value>
void AddExtremes(OpcodeTable* table, const std::string& type) {
  const auto add = [&]<typename Function>(const std::string& name, Function function) {
    AddLanes<Value, Value, Value>(table, {(name + type).c_str()}, function);
  };
  add("max.", [](Value a, Value b) {
    return IsNan(a) ? Canonical(b) : IsNan(b) ? a : Larger(a, b);
  });
  add("min.", [](Value a, Value b) {
    return IsNan(a) ? Canonical(b) : IsNan(b) ? a : Smaller(a, b);
  });
  if constexpr (sizeof(Value) == 4) {  // PTX has no .NaN of 64 bits
    add("max.NaN.",
        [](Value a, Value b) { return IsNan(a) || IsNan(b) ? Canonical(a + b) : Larger(a, b); });
    add("min.NaN.",
        [](Value a, Value b) { return IsNan(a) || IsNan(b) ? Canonical(a + b) : Smaller(a, b); });
  }
}

// "neg", "abs": of the sign bit alone, NaN included.
void AddSigns(OpcodeTable* table) {
  AddLanes<uint32_t, uint32_t>(table, {"neg.f32"}, [](uint32_t a) { return a ^ 0x80000000u; });
  AddLanes<uint32_t, uint32_t>(table, {"abs.f32"}, [](uint32_t a) { return a & 0x7FFFFFFFu; });
  constexpr uint64_t kSign = uint64_t{1} << 63;
  AddLanes<uint64_t, uint64_t>(table, {"neg.f64"}, [](uint64_t a) { return a ^ kSign; });
  AddLanes<uint64_t, uint64_t>(table, {"abs.f64"}, [](uint64_t a) { return a & ~kSign; });
}

// "rcp.approx.f32": within one unit in the last place. A power of two has an exact result, as
// nvcc's own division of 128 bits needs it for 1.
float Reciprocal(float a) { return Canonical(static_cast<float>(1.0 / static_cast<double>(a))); }

float RoughReciprocal(float a, uint64_t seed) {
  const float nearest = Reciprocal(a);
  const auto bits = std::bit_cast<uint32_t>(a);
  if (!std::isnormal(nearest) || (bits & 0x7FFFFFu) == 0) return nearest;
  const double exact = 1.0 / static_cast<double>(a);
  const auto hash = static_cast<uint32_t>((bits * uint64_t{2654435761u} + seed * 40503u) >> 7);
  const float up = std::nextafter(nearest, std::numeric_limits<float>::infinity());
  const float down = std::nextafter(nearest, -std::numeric_limits<float>::infinity());
  const float chosen = hash % 3 == 0 ? nearest : hash % 3 == 1 ? up : down;
  const double unit = std::abs(static_cast<double>(up) - static_cast<double>(nearest));
  return std::abs(static_cast<double>(chosen) - exact) <= unit ? chosen : nearest;
}

void RunReciprocal(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const LaunchOptions& options = warp.launch().options;
  const auto* const source = frame.Source<uint32_t>(instruction.sources[0]);
  uint32_t values[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const auto a = std::bit_cast<float>(source[i]);
    values[i] = std::bit_cast<uint32_t>(
        options.has_rough_reciprocals ? RoughReciprocal(a, options.seed) : Reciprocal(a));
  }
  WriteLanes(frame, instruction.result, values, lanes);
}

// "rcp.approx.ftz.f64": of the upper word of the operand, to an upper word. Denormals are zeros.
uint64_t UpperWord(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value) & 0xFFFFFFFF00000000u;
  const bool is_denormal = (bits & 0x7FF0000000000000u) == 0;
  return is_denormal ? bits & 0x8000000000000000u : bits;
}

}  // namespace

void AddFloatOpcodes(OpcodeTable* table) {
  AddRounded<float>(table, "f32");
  AddRounded<double>(table, "f64");
  AddExtremes<float>(table, "f32");
  AddExtremes<double>(table, "f64");
  AddSigns(table);
  (*table)["rcp.approx.f32"] = {&RunReciprocal, 4, {4}};
  AddLanes<uint64_t, double>(table, {"rcp.approx.ftz.f64"}, [](double a) {
    return UpperWord(1.0 / std::bit_cast<double>(UpperWord(a)));
  });
  // "ex2.approx": 2^a. With .ftz, denormals are zeros on both sides.
  AddLanes<float, float>(table, {"ex2.approx.ftz.f32"}, [](float a) {
    return FlushDenormal(
        Canonical(static_cast<float>(std::exp2(static_cast<double>(FlushDenormal(a))))));
  });
}

}  // namespace specd::ptx
