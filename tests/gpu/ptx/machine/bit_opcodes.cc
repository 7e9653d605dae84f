// PTX ISA, "Logic and Shift Instructions", the bit fields of "Integer Arithmetic Instructions", and
// prmt of "Data Movement and Conversion Instructions".
#include <algorithm>

#include "tests/gpu/ptx/machine/lane_functions.h"

namespace specd::ptx {

namespace {

template <typename Value>
void AddLogic(OpcodeTable* table, const std::string& type) {
  const auto add = [&]<typename Function>(const char* name, Function function) {
    AddLanes<Value, Value, Value>(table, {(name + ("." + type)).c_str()}, function);
  };
  // "and", "or", "xor", "not"
  add("and", [](Value a, Value b) { return static_cast<Value>(a & b); });
  add("or", [](Value a, Value b) { return static_cast<Value>(a | b); });
  add("xor", [](Value a, Value b) { return static_cast<Value>(a ^ b); });
  AddLanes<Value, Value>(table, {("not." + type).c_str()},
                         [](Value a) { return static_cast<Value>(~a); });
}

// "shl", "shr": an amount beyond the width counts as the width. The amount has 32 bits.
template <typename Value>
void AddShifts(OpcodeTable* table, const std::string& bits) {
  using Signed = std::make_signed_t<Value>;
  constexpr uint32_t kBits = 8 * sizeof(Value);
  AddLanes<Value, Value, uint32_t>(table, {("shl.b" + bits).c_str()}, [](Value a, uint32_t by) {
    return by >= kBits ? Value{0} : static_cast<Value>(a << by);
  });
  AddLanes<Value, Value, uint32_t>(
      table, {("shr.b" + bits).c_str(), ("shr.u" + bits).c_str()},
      [](Value a, uint32_t by) { return by >= kBits ? Value{0} : static_cast<Value>(a >> by); });
  AddLanes<Signed, Signed, uint32_t>(table, {("shr.s" + bits).c_str()}, [](Signed a, uint32_t by) {
    return static_cast<Signed>(a >> std::min(by, kBits - 1));
  });
}

// "shf": the upper (l) or lower (r) word of b:a, shifted by c modulo 32 (wrap) or at most 32
// (clamp).
template <bool kWrap>
struct FunnelLeft {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t by) const {
    const uint32_t n = kWrap ? by & 31 : std::min(by, 32u);
    return static_cast<uint32_t>((uint64_t{b} << 32 | a) << n >> 32);
  }
};
template <bool kWrap>
struct FunnelRight {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t by) const {
    const uint32_t n = kWrap ? by & 31 : std::min(by, 32u);
    return static_cast<uint32_t>((uint64_t{b} << 32 | a) >> n);
  }
};

void AddFunnels(OpcodeTable* table) {
  const auto add = [&]<typename Function>(const char* name, Function function) {
    AddLanes<uint32_t, uint32_t, uint32_t, uint32_t>(table, {name}, function);
  };
  add("shf.l.wrap.b32", FunnelLeft<true>());
  add("shf.r.wrap.b32", FunnelRight<true>());
  add("shf.l.clamp.b32", FunnelLeft<false>());
  add("shf.r.clamp.b32", FunnelRight<false>());
}

// So many ones from the lowest bit on.
template <typename Value>
Value Ones(uint32_t count) {
  return count >= 8 * sizeof(Value) ? static_cast<Value>(-1)
                                    : static_cast<Value>((Value{1} << count) - 1);
}

// "bfi": the lowest bits of a go into b from a place on. "bfe": bits of a from a place on; signed
// ones repeat the highest bit that was taken. Place and length are the low 8 bits of their
// operands.
template <typename Value>
void AddFields(OpcodeTable* table, const std::string& bits) {
  using Signed = std::make_signed_t<Value>;
  constexpr uint32_t kBits = 8 * sizeof(Value);
  AddLanes<Value, Value, Value, uint32_t, uint32_t>(
      table, {("bfi.b" + bits).c_str()}, [](Value a, Value b, uint32_t at, uint32_t length) {
        at &= 255;
        if (at >= kBits) return b;
        const auto mask = static_cast<Value>(Ones<Value>(length & 255) << at);
        return static_cast<Value>((b & ~mask) | (a << at & mask));
      });
  AddLanes<Value, Value, uint32_t, uint32_t>(
      table, {("bfe.u" + bits).c_str()}, [](Value a, uint32_t at, uint32_t length) {
        at &= 255;
        return at >= kBits ? Value{0} : static_cast<Value>(a >> at & Ones<Value>(length & 255));
      });
  AddLanes<Signed, Signed, uint32_t, uint32_t>(
      table, {("bfe.s" + bits).c_str()}, [](Signed a, uint32_t at, uint32_t length) {
        at &= 255;
        length &= 255;
        if (length == 0) return Signed{0};
        const Signed shifted = static_cast<Signed>(a >> std::min(at, kBits - 1));
        const uint32_t left = kBits - std::min(at, kBits - 1);
        if (length >= left) return shifted;
        const uint32_t unused = kBits - length;
        return static_cast<Signed>(static_cast<Value>(shifted) << unused) >> unused;
      });
}

uint32_t ReverseBits(uint32_t a) {
  a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
  a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
  a = (a >> 4 & 0x0F0F0F0Fu) | (a & 0x0F0F0F0Fu) << 4;
  return __builtin_bswap32(a);
}

// "prmt", without a mode: each 4 bits of c choose a byte of b:a, or its sign 8 times.
uint32_t Permute(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t selector = selectors >> (4 * i) & 15;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (selector & 7))) & 255;
    if ((selector & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// "lop3": bit (a, b, c) of the table is the result's bit.
uint32_t Lookup(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t result = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t is_there = (table >> i & 1) != 0 ? ~0u : 0u;
    result |=
        is_there & ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
  }
  return result;
}

}  // namespace

void AddBitOpcodes(OpcodeTable* table) {
  AddLogic<uint16_t>(table, "b16");
  AddLogic<uint32_t>(table, "b32");
  AddLogic<uint64_t>(table, "b64");
  AddShifts<uint16_t>(table, "16");
  AddShifts<uint32_t>(table, "32");
  AddShifts<uint64_t>(table, "64");
  AddFields<uint32_t>(table, "32");
  AddFields<uint64_t>(table, "64");
  AddFunnels(table);
  AddLanes<uint32_t, uint32_t>(table, {"brev.b32"}, [](uint32_t a) { return ReverseBits(a); });
  AddLanes<uint32_t, uint32_t, uint32_t, uint32_t>(
      table, {"prmt.b32"}, [](uint32_t a, uint32_t b, uint32_t c) { return Permute(a, b, c); });
  AddLanes<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>(
      table, {"lop3.b32"},
      [](uint32_t a, uint32_t b, uint32_t c, uint32_t t) { return Lookup(a, b, c, t); });
}

}  // namespace specd::ptx
