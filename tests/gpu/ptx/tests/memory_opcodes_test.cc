// Memory of every kind in the PTX machine: widths, vectors, addresses and atomic operations.
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

  TEST_CASE("PTX machine: vectors go to memory in order, and `_` drops an element") {
    DeviceBlock block(64);
    auto* const words = reinterpret_cast<uint32_t*>(block.begin());
    for (uint32_t i = 0; i < 4; ++i) words[i] = 10 + i;
    RunOne(
        ".reg .b32 %a, %b, %c, %d;\n"
        "ld.global.v4.u32 {%a, _, %c, %d}, [%p]; ld.global.v2.u32 {_, %b}, [%p];\n"
        "st.global.v4.u32 [%p+16], {%d, %c, %b, 5}; st.global.v2.u32 [%p+32], {%a, -1};",
        &block);
    CHECK(words[4] == 13);
    CHECK(words[5] == 12);
    CHECK(words[6] == 11);
    CHECK(words[7] == 5);
    CHECK(words[8] == 10);
    CHECK(words[9] == ~0u);
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
        "cvta.to.shared.u64 %c, %b; sub.s64 %c, %c, %a; st.global.u64 [%p+16], %c;",
        &block, ".shared .align 4 .b8 words[8];");
    const auto* const words = reinterpret_cast<uint32_t*>(block.begin());
    CHECK(words[0] == 7);
    CHECK(words[1] == 9);
    CHECK(*reinterpret_cast<uint64_t*>(block.begin() + 8) == 0);
    CHECK(*reinterpret_cast<uint64_t*>(block.begin() + 16) == 0);
  }

  TEST_CASE("PTX machine: variables have their initial values, addresses among them") {
    DeviceBlock block(32);
    RunOne(
        ".reg .b64 %a; .reg .b32 %v; ld.global.u64 %a, [where]; ld.global.u32 %v, [%a+4];\n"
        "st.global.u32 [%p], %v; ld.const.u32 %v, [rest+8]; st.global.u32 [%p+4], %v;",
        &block,
        ".global .align 4 .u32 table[3] = {5, 6, 7};\n.global .align 8 .u64 where = table;\n"
        ".const .align 4 .u32 rest[3] = {1};");
    const auto* const words = reinterpret_cast<uint32_t*>(block.begin());
    CHECK(words[0] == 6);
    CHECK(words[1] == 0);
  }

  TEST_CASE("PTX machine: atomic operations of many threads lose nothing") {
    DeviceBlock block(64);
    auto* const words = reinterpret_cast<uint32_t*>(block.begin());
    std::memset(block.begin(), 0, 64);
    words[2] = 1000;
    const std::string body =
        ".reg .b64 %p, %w, %o; .reg .b32 %i, %t, %d; ld.param.u64 %p, [p0];\n"
        "mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mad.lo.s32 %i, %i, 64, %t;\n"
        "atom.relaxed.gpu.add.u32 %d, [%p], %i; red.relaxed.gpu.max.s32 [%p+4], %i;\n"
        "red.relaxed.gpu.min.s32 [%p+8], %i; mov.u64 %o, 1; shl.b64 %o, %o, %t;\n"
        "red.relaxed.gpu.or.b64 [%p+16], %o; atom.add.u64 %w, [%p+24], %o;";
    REQUIRE(RunText(EntryText(1, body), {.grid = 5, .block = 64},
                    {reinterpret_cast<uint64_t>(words)}, {.quantum = 2})
                .ok());
    CHECK(words[0] == 320 * 319 / 2);
    CHECK(words[1] == 319);
    CHECK(words[2] == 0);
    CHECK(*reinterpret_cast<uint64_t*>(words + 4) == ~uint64_t{0});
    CHECK(*reinterpret_cast<uint64_t*>(words + 6) == 5 * ~uint64_t{0});
  }

  TEST_CASE("PTX machine: calls pass params and results, by name and by address") {
    const std::string functions =
        ".func (.param .b32 r) twice(.param .b32 a)\n{ .reg .b32 %x; ld.param.u32 %x, [a];\n"
        "add.s32 %x, %x, %x; st.param.b32 [r], %x; ret; }\n"
        ".func (.param .b32 r) square(.param .b32 a)\n{ .reg .b32 %x; ld.param.u32 %x, [a];\n"
        "mul.lo.s32 %x, %x, %x; st.param.b32 [r], %x; ret; }\n"
        ".global .align 8 .u64 functions[2] = {twice, square};";
    // Even lanes call twice and odd ones square, through a table; all call twice by name.
    const std::string body =
        ".reg .b64 %p, %f, %o; .reg .b32 %t, %e, %v; ld.param.u64 %p, [p0]; mov.u32 %t, %tid.x;\n"
        "and.b32 %e, %t, 1; mul.wide.u32 %o, %e, 8; mov.u64 %f, functions; add.s64 %f, %f, %o;\n"
        "ld.global.u64 %f, [%f];\n"
        "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %t;\n"
        "proto : .callprototype (.param .b32 _) _ (.param .b32 _);\n"
        "call (y), %f, (x), proto; ld.param.b32 %v, [y]; }\n"
        "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %v;\n"
        "call.uni (y), twice, (x); ld.param.b32 %v, [y]; }\n"
        "mul.wide.u32 %o, %t, 4; add.s64 %p, %p, %o; st.global.u32 [%p], %v;";
    DeviceBlock block(128);
    const absl::Status status =
        RunText(EntryText(1, body, functions), {}, {reinterpret_cast<uint64_t>(block.begin())});
    REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
    const auto* const words = reinterpret_cast<uint32_t*>(block.begin());
    for (uint32_t i = 0; i < 32; ++i) CHECK(words[i] == 2 * (i % 2 == 0 ? 2 * i : i * i));
  }
}

}  // namespace
}  // namespace specd::ptx
