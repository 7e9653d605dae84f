// Bits in the PTX machine, against functions of the host that go bit by bit.
#include <doctest/doctest.h>

#include <bitset>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

// A number whose bit i is function(i).
template <typename Value, typename Function>
Value FromBits(const Function& function) {
  std::make_unsigned_t<Value> value = 0;
  for (size_t i = 0; i < 8 * sizeof(Value); ++i) {
    if (function(i)) value = static_cast<decltype(value)>(value | uint64_t{1} << i);
  }
  return static_cast<Value>(value);
}
template <typename Value>
bool Bit(Value value, size_t i) {
  return i < 8 * sizeof(Value) && (static_cast<std::make_unsigned_t<Value>>(value) >> i & 1) != 0;
}

template <typename Value>
void CheckShifts(const std::string& bits) {
  using Signed = std::make_signed_t<Value>;
  constexpr size_t kBits = 8 * sizeof(Value);
  CheckOpcode<Value, Value, uint32_t>("shl.b" + bits, [](Value a, uint32_t by) {
    return FromBits<Value>([&](size_t i) { return i >= by && Bit(a, i - by); });
  });
  for (const char* const name : {"shr.u", "shr.b"}) {
    CheckOpcode<Value, Value, uint32_t>(name + bits, [](Value a, uint32_t by) {
      return FromBits<Value>([&](size_t i) { return Bit(a, i + by); });
    });
  }
  CheckOpcode<Signed, Signed, uint32_t>("shr.s" + bits, [](Signed a, uint32_t by) {
    return FromBits<Signed>([&](size_t i) { return Bit(a, std::min(i + by, kBits - 1)); });
  });
}

template <typename Value>
void CheckLogic(const std::string& bits) {
  constexpr size_t kBits = 8 * sizeof(Value);
  using Set = std::bitset<kBits>;
  CheckOpcode<Value, Value, Value>("and.b" + bits,
                                   [](Value a, Value b) { return (Set(a) & Set(b)).to_ullong(); });
  CheckOpcode<Value, Value, Value>("or.b" + bits,
                                   [](Value a, Value b) { return (Set(a) | Set(b)).to_ullong(); });
  CheckOpcode<Value, Value, Value>("xor.b" + bits,
                                   [](Value a, Value b) { return (Set(a) ^ Set(b)).to_ullong(); });
  CheckOpcode<Value, Value>("not.b" + bits, [](Value a) { return (~Set(a)).to_ullong(); });
}

template <typename Value>
void CheckFields(const std::string& bits) {
  using Signed = std::make_signed_t<Value>;
  constexpr uint32_t kBits = 8 * sizeof(Value);
  CheckOpcode<Value, Value, Value, uint32_t, uint32_t>(
      "bfi.b" + bits, [](Value a, Value b, uint32_t at, uint32_t length) {
        at &= 255;
        length &= 255;
        return FromBits<Value>(
            [&](size_t i) { return i >= at && i < at + length ? Bit(a, i - at) : Bit(b, i); });
      });
  CheckOpcode<Value, Value, uint32_t, uint32_t>(
      "bfe.u" + bits, [](Value a, uint32_t at, uint32_t length) {
        at &= 255;
        length &= 255;
        return FromBits<Value>([&](size_t i) { return i < length && Bit(a, at + i); });
      });
  CheckOpcode<Signed, Signed, uint32_t, uint32_t>(
      "bfe.s" + bits, [](Signed a, uint32_t at, uint32_t length) {
        at &= 255;
        length &= 255;
        // The manual's own: the sign is bit min(at + length - 1, msb), or 0 without a length.
        const bool sign = length != 0 && Bit(a, std::min(at + length - 1, kBits - 1));
        return FromBits<Signed>(
            [&](size_t i) { return i < length && at + i < kBits ? Bit(a, at + i) : sign; });
      });
}

TEST_SUITE("unit") {
  TEST_CASE("PTX machine: shifts by any amount, past the width too") {
    CheckShifts<uint16_t>("16");
    CheckShifts<uint32_t>("32");
    CheckShifts<uint64_t>("64");
  }

  TEST_CASE("PTX machine: and, or, xor and not") {
    CheckLogic<uint16_t>("16");
    CheckLogic<uint32_t>("32");
    CheckLogic<uint64_t>("64");
  }

  TEST_CASE("PTX machine: bit fields") {
    CheckFields<uint32_t>("32");
    CheckFields<uint64_t>("64");
  }

  TEST_CASE("PTX machine: funnel shifts") {
    const auto both = [](uint32_t a, uint32_t b, size_t i) {
      return i < 32 ? Bit(a, i) : Bit(b, i - 32);
    };
    const auto right = [&](uint32_t a, uint32_t b, uint32_t by) {
      return FromBits<uint32_t>([&](size_t i) { return both(a, b, i + by); });
    };
    const auto left = [&](uint32_t a, uint32_t b, uint32_t by) {
      return FromBits<uint32_t>([&](size_t i) { return both(a, b, i + 32 - by); });
    };
    CheckOpcode<uint32_t, uint32_t, uint32_t, uint32_t>(
        "shf.r.wrap.b32", [&](auto a, auto b, auto c) { return right(a, b, c % 32); });
    CheckOpcode<uint32_t, uint32_t, uint32_t, uint32_t>(
        "shf.l.wrap.b32", [&](auto a, auto b, auto c) { return left(a, b, c % 32); });
    CheckOpcode<uint32_t, uint32_t, uint32_t, uint32_t>(
        "shf.r.clamp.b32", [&](auto a, auto b, auto c) { return right(a, b, std::min(c, 32u)); });
    CheckOpcode<uint32_t, uint32_t, uint32_t, uint32_t>(
        "shf.l.clamp.b32", [&](auto a, auto b, auto c) { return left(a, b, std::min(c, 32u)); });
  }

  TEST_CASE("PTX machine: reversed bits, permuted bytes and tables of three bits") {
    CheckOpcode<uint32_t, uint32_t>("brev.b32", [](uint32_t a) {
      return FromBits<uint32_t>([&](size_t i) { return Bit(a, 31 - i); });
    });
    CheckOpcode<uint32_t, uint32_t, uint32_t, uint32_t>(
        "prmt.b32", [](uint32_t a, uint32_t b, uint32_t c) {
          return FromBits<uint32_t>([&](size_t i) {
            const uint32_t selector = c >> (i / 8 * 4) & 15;
            const uint32_t source = (selector & 4) != 0 ? b : a;
            const size_t bit = (selector & 8) != 0 ? 7 : i % 8;
            return Bit(source, (selector & 3) * 8 + bit);
          });
        });
    for (const uint32_t table : {0x00u, 0x96u, 0xE8u, 0x80u, 0xFEu, 0xCAu}) {
      // A number as the last operand.
      const std::string text =
          ".reg .b32 %a, %b, %c, %d; .reg .b64 %p; ld.param.u64 %p, [p0];\n"
          "mov.b32 %a, 0xF0F0F0F0; mov.b32 %b, 0xCCCCCCCC; mov.b32 %c, 0xAAAAAAAA;\n"
          "lop3.b32 %d, %a, %b, %c, " +
          std::to_string(table) + "; st.global.b32 [%p], %d;";
      DeviceBlock block(4);
      REQUIRE(RunText(EntryText(1, text), {.block = 1}, {reinterpret_cast<uint64_t>(block.begin())})
                  .ok());
      // With these operands, the result's bits 0 to 7 are the table.
      CHECK((*reinterpret_cast<uint32_t*>(block.begin()) & 255) == table);
    }
  }
}

}  // namespace
}  // namespace specd::ptx
