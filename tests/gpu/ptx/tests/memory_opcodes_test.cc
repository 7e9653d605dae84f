// Memory of every kind in the PTX machine: widths, generic addresses and atomic operations.
#include <doctest/doctest.h>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

// One thread, with the block's address in %p.
void RunOne(const std::string& body, DeviceBlock* block, const std::string& globals = "") {
  const std::string begin = ".reg .b64 %p; ld.param.u64 %p, [p0];\n";
  const absl::Status status = RunText(EntryText(1, begin + body, globals), {.block = 1},
                                      {reinterpret_cast<uint64_t>(block->begin())});
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
}

// An atomic operation on memory of each thread: what was there before, and what is there
// afterwards.
template <typename Value, typename Function>
void CheckAtomic(const std::string& name, const Function& function) {
  // %p is the address of the last source.
  CheckOpcode<Value, Value, Value>("atom.global." + name + " %d, [%p], %s0; //",
                                   [](Value, Value before) { return before; });
  const std::string load = fmt::format("ld.global.b{} %d, [%p]; //", 8 * sizeof(Value));
  const auto after = [&](Value operand, Value before) {
    return static_cast<Value>(function(before, operand));
  };
  CheckOpcode<Value, Value, Value>("atom.global." + name + " %d, [%p], %s0; " + load, after);
  CheckOpcode<Value, Value, Value>("red.global." + name + " [%p], %s0; " + load, after);
}
template <typename Value>
void CheckAtomicExtremes(const std::string& type) {
  CheckAtomic<Value>("max." + type, [](Value a, Value b) { return a > b ? a : b; });
  CheckAtomic<Value>("min." + type, [](Value a, Value b) { return a < b ? a : b; });
}

TEST_SUITE("unit") {
  TEST_CASE("PTX machine: loads extend by the type's sign into wider registers") {
    DeviceBlock block(64);
    auto* const bytes = reinterpret_cast<uint8_t*>(block.begin());
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(0xF8 + i);
    RunOne(
        ".reg .b32 %a, %b; .reg .b64 %c, %d; .reg .b16 %e;\n"
        "ld.global.s8 %a, [%p]; ld.global.u8 %b, [%p]; ld.global.s16 %c, [%p]; ld.s32 %d, [%p];\n"
        "ld.u8 %e, [%p+7];\n"
        "st.global.u32 [%p+16], %a; st.global.u32 [%p+20], %b; st.global.u64 [%p+24], %c;\n"
        "st.u64 [%p+32], %d; st.u16 [%p+40], %e; st.u8 [%p+42], %b;",
        &block);
    CHECK(*reinterpret_cast<int32_t*>(bytes + 16) == -8);
    CHECK(*reinterpret_cast<int32_t*>(bytes + 20) == 0xF8);
    CHECK(*reinterpret_cast<int64_t*>(bytes + 24) == static_cast<int16_t>(0xF9F8));
    CHECK(*reinterpret_cast<int64_t*>(bytes + 32) == static_cast<int32_t>(0xFBFAF9F8));
    CHECK(*reinterpret_cast<uint16_t*>(bytes + 40) == 0xFF);
    CHECK(bytes[42] == 0xF8);
  }

  TEST_CASE("PTX machine: a generic address reaches shared and local memory, and comes back") {
    DeviceBlock block(32);
    RunOne(
        ".local .align 8 .b8 depot[16]; .reg .b64 %a, %b, %c; .reg .b32 %v;\n"
        "mov.u64 %a, depot; cvta.local.u64 %b, %a; mov.u32 %v, 7; st.u32 [%b+4], %v;\n"
        "ld.local.u32 %v, [%a+4]; st.global.u32 [%p], %v;\n"
        "cvta.to.local.u64 %c, %b; sub.s64 %c, %c, %a; st.global.u64 [%p+8], %c;\n"
        "mov.u64 %a, words; cvta.shared.u64 %b, %a; mov.u32 %v, 9; st.shared.u32 [words+4], %v;\n"
        "ld.u32 %v, [%b+4]; st.global.u32 [%p+4], %v;\n"
        "cvta.to.shared.u64 %c, %b; sub.s64 %c, %c, %a; st.global.u64 [%p+16], %c;\n"
        "cvta.to.global.u64 %c, %p; sub.s64 %c, %c, %p; st.global.u64 [%p+24], %c;",
        &block, ".shared .align 4 .b8 words[8];");
    const auto* const words = reinterpret_cast<uint32_t*>(block.begin());
    CHECK(words[0] == 7);
    CHECK(words[1] == 9);
    CHECK(*reinterpret_cast<uint64_t*>(block.begin() + 8) == 0);
    CHECK(*reinterpret_cast<uint64_t*>(block.begin() + 16) == 0);
    CHECK(*reinterpret_cast<uint64_t*>(block.begin() + 24) == 0);
  }

  TEST_CASE("PTX machine: an atomic operation combines its operand with what was there") {
    const auto sum = [](auto a, auto b) { return a + b; };
    CheckAtomic<uint32_t>("add.u32", sum);
    CheckAtomic<uint32_t>("add.s32", sum);
    CheckAtomic<uint64_t>("add.u64", sum);
    CheckAtomic<uint32_t>("or.b32", [](uint32_t a, uint32_t b) { return ~(~a & ~b); });
    CheckAtomic<uint64_t>("or.b64", [](uint64_t a, uint64_t b) { return ~(~a & ~b); });
    CheckAtomicExtremes<int32_t>("s32");
    CheckAtomicExtremes<uint32_t>("u32");
    CheckAtomicExtremes<int64_t>("s64");
    CheckAtomicExtremes<uint64_t>("u64");
  }

  TEST_CASE("PTX machine: atomic operations of many threads lose nothing") {
    DeviceBlock block(64);
    auto* const words = reinterpret_cast<uint32_t*>(block.begin());
    std::memset(block.begin(), 0, 64);
    words[2] = 1000;
    reinterpret_cast<int32_t*>(words)[8] = -60000;
    const std::string body =
        ".reg .b64 %p, %w, %o; .reg .b32 %i, %t, %d; ld.param.u64 %p, [p0];\n"
        "mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mad.lo.s32 %i, %i, 64, %t;\n"
        "atom.relaxed.gpu.add.u32 %d, [%p], %i; red.relaxed.gpu.max.s32 [%p+4], %i;\n"
        "red.relaxed.gpu.min.s32 [%p+8], %i; mov.u64 %o, 1; shl.b64 %o, %o, %t;\n"
        "red.relaxed.gpu.or.b64 [%p+16], %o; atom.add.u64 %w, [%p+24], %o;\n"
        "atom.relaxed.gpu.add.s32 %d, [%p+32], %i;";
    REQUIRE(RunText(EntryText(1, body), {.grid = 5, .block = 64},
                    {reinterpret_cast<uint64_t>(words)}, {.quantum = 2})
                .ok());
    CHECK(words[0] == 320 * 319 / 2);
    CHECK(words[1] == 319);
    CHECK(words[2] == 0);
    CHECK(*reinterpret_cast<uint64_t*>(words + 4) == ~uint64_t{0});
    CHECK(*reinterpret_cast<uint64_t*>(words + 6) == 5 * ~uint64_t{0});
    CHECK(reinterpret_cast<int32_t*>(words)[8] == 320 * 319 / 2 - 60000);
  }
}

}  // namespace
}  // namespace specd::ptx
