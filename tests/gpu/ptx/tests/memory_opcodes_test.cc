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

// A type of elements, and the registers that hold one.
struct ElementType {
  const char* name;
  uint32_t size_bytes;
  const char* registers;
};
constexpr ElementType kElementTypes[] = {
    {"b8", 1, "b16"},  {"u8", 1, "b16"},  {"s8", 1, "b16"},  {"b16", 2, "b16"}, {"u16", 2, "b16"},
    {"s16", 2, "b16"}, {"b32", 4, "b32"}, {"u32", 4, "b32"}, {"s32", 4, "b32"}, {"f32", 4, "f32"},
    {"b64", 8, "b64"}, {"u64", 8, "b64"}, {"s64", 8, "b64"}, {"f64", 8, "f64"}};

// Bytes go from the block's begin to memory of some kind, and come back to the block.
struct Way {
  const char* load;
  const char* store;
  const char* address;
};
constexpr Way kWays[] = {{"ld.global", "st.global", "%p+256"},
                         {"ld", "st", "%p+272"},
                         {"ld.shared", "st.shared", "words"},
                         {"ld.local", "st.local", "%l"},
                         {"ld", "st", "%g"},
                         {"ld.global.cs", "st.global.cs", "%p+288"},
                         {"ld.global.nc", "st.global", "%p+368"},
                         {"ld.volatile.global", "st.volatile.global", "%p+304"},
                         {"ld.volatile", "st.volatile", "%p+320"},
                         {"ld.relaxed.gpu", "st.relaxed.gpu", "%p+336"},
                         {"ld.acquire.sys", "st.release.sys", "%p+352"}};

// `count` elements of the type go every way, and through the params of a call.
void CheckWays(const ElementType& type, uint32_t count) {
  const std::string ending = (count == 1 ? "." : fmt::format(".v{}.", count)) + type.name;
  CAPTURE(ending);
  const auto values = [&](const char* name) {
    std::string text;
    for (uint32_t i = 0; i < count; ++i)
      text += fmt::format("{}%{}{}", i == 0 ? "" : ", ", name, i);
    return count == 1 ? text : "{" + text + "}";
  };
  const auto move = [&](const std::string& load, const std::string& from, const std::string& store,
                        const std::string& to, const char* name) {
    return fmt::format("{0}{2} {3}, [{1}]; ", load, from, ending, values(name)) +
           fmt::format("{0}{2} [{1}], {3};\n", store, to, ending, values(name));
  };
  const std::string registers = fmt::format(".reg .{} %v<4>, %w<4>;\n", type.registers);
  const std::string globals =
      ".shared .align 16 .b8 words[16];\n"
      ".func (.param .align 16 .b8 r[16]) same(.param .align 16 .b8 a[16])\n{ " +
      registers + move("ld.param", "a", "st.param", "r", "v") + "ret; }\n";
  std::string body = ".local .align 16 .b8 d[32]; .reg .b64 %l, %g; mov.u64 %l, d;\n" + registers +
                     "cvta.local.u64 %g, %l; add.s64 %g, %g, 16;\n";
  uint32_t to = 0;
  const auto next = [&] { return fmt::format("%p+{}", to += 16); };
  for (const Way& way : kWays) {
    body += move("ld.global", "%p", way.store, way.address, "v");
    body += move(way.load, way.address, "st.global", next(), "w");
  }
  body += "{ .param .align 16 .b8 x[16]; .param .align 16 .b8 y[16];\n" +
          move("ld.global", "%p", "st.param", "x", "v") + "call.uni (y), same, (x);\n" +
          move("ld.param", "y", "st.global", next(), "w") + "}";
  DeviceBlock block(512);
  auto* const bytes = reinterpret_cast<uint8_t*>(block.begin());
  std::memset(bytes, 0, 512);
  const uint32_t size_bytes = count * type.size_bytes;
  for (uint32_t i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(0xF1 + 7 * i);
  RunOne(body, &block, globals);
  for (uint32_t at = 16; at <= to; at += 16) {
    CAPTURE(at);
    for (uint32_t i = 0; i < 16; ++i) CHECK(bytes[at + i] == (i < size_bytes ? bytes[i] : 0));
  }
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

  TEST_CASE("PTX machine: elements of every type go to every memory and come back") {
    for (const ElementType& type : kElementTypes) {
      for (const uint32_t count : {1u, 2u, 4u}) {
        if (count * type.size_bytes <= 16) CheckWays(type, count);
      }
    }
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
