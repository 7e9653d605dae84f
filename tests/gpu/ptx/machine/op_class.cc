#include "tests/gpu/ptx/machine/op_class.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace specd::ptx {

namespace {

constexpr std::array<std::string_view, kNumOpClasses> kNames = {
    "float",    "alu",     "wide_alu", "multiply",  "wide_multiply", "divide",
    "double",   "special", "convert",  "bit_count", "move",          "control",
    "exchange", "sync",    "memory",   "shared",    "local",         "atomic"};

bool StartsWithAny(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}
bool Holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

OpClass ClassOfAccess(std::string_view opcode) {
  if (Holds(opcode, ".param")) return OpClass::kMove;
  if (Holds(opcode, ".local")) return OpClass::kLocal;
  return Holds(opcode, ".shared") ? OpClass::kShared : OpClass::kMemory;
}

bool IsWide(std::string_view opcode) { return opcode.ends_with("64"); }

OpClass ClassOfInteger(std::string_view opcode) {
  if (StartsWithAny(opcode, {"mul", "mad"})) {
    const bool is_wide = IsWide(opcode) && !Holds(opcode, ".wide");
    return is_wide ? OpClass::kWideMultiply : OpClass::kMultiply;
  }
  return IsWide(opcode) ? OpClass::kWideAlu : OpClass::kAlu;
}

}  // namespace

std::string_view NameOf(OpClass op_class) { return kNames[static_cast<size_t>(op_class)]; }

OpClass OpClassOf(std::string_view opcode) {
  if (StartsWithAny(opcode, {"ld.", "st."})) return ClassOfAccess(opcode);
  if (StartsWithAny(opcode, {"atom.", "red."})) return OpClass::kAtomic;
  if (StartsWithAny(opcode, {"shfl.", "vote.", "redux."})) return OpClass::kExchange;
  if (StartsWithAny(opcode, {"bar.", "barrier.", "fence.", "membar.", "griddepcontrol."})) {
    return OpClass::kSync;
  }
  if (StartsWithAny(opcode, {"bra", "ret", "exit", "call", "trap"})) return OpClass::kControl;
  if (StartsWithAny(opcode, {"mov.", "cvta.", "mapa."})) return OpClass::kMove;
  if (StartsWithAny(opcode, {"popc.", "clz.", "bfind.", "brev."})) return OpClass::kBitCount;
  if (StartsWithAny(opcode, {"setp.", "selp.", "set.", "slct."})) {
    if (Holds(opcode, ".f64")) return OpClass::kDouble;
    return IsWide(opcode) ? OpClass::kWideAlu : OpClass::kAlu;
  }
  const bool is_float = Holds(opcode, ".f32") || Holds(opcode, ".f16") || Holds(opcode, ".bf16");
  if (opcode.starts_with("cvt.")) {
    return is_float || Holds(opcode, ".f64") ? OpClass::kConvert : OpClass::kAlu;
  }
  if (StartsWithAny(opcode, {"rcp.approx", "ex2.", "lg2.", "sqrt.approx", "rsqrt."})) {
    return OpClass::kSpecial;
  }
  if (StartsWithAny(opcode, {"div.", "rem.", "rcp.", "sqrt."})) return OpClass::kDivide;
  if (Holds(opcode, ".f64")) return OpClass::kDouble;
  if (is_float) {
    const bool is_sum = StartsWithAny(opcode, {"add.", "sub.", "mul.", "fma.", "mad."});
    return is_sum ? OpClass::kFloat : OpClass::kAlu;
  }
  return ClassOfInteger(opcode);
}

}  // namespace specd::ptx
