// The counts of a profile against counts by hand: sectors, bank conflicts, idle lanes, classes of
// instructions, and the longest chain.
#include "tests/gpu/ptx/machine/profile.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

// The profile of one launch. `tid` is in %t, and p0 in %p.
LaunchProfile ProfileOf(const std::string& body, DeviceBlock* block, const LaunchShape& shape = {},
                        const std::string& globals = "",
                        const std::vector<AddressRange>& rows = {}) {
  Profiler profiler;
  profiler.SetRows(rows);
  const std::string head =
      ".reg .b64 %p, %q, %a; .reg .b32 %t, %u, %v, %w; .reg .pred %b;\n"
      "ld.param.u64 %p, [p0];\nmov.u32 %t, %tid.x;\n";
  const absl::Status status =
      RunText(EntryText(1, head + body, globals), shape,
              {reinterpret_cast<uint64_t>(block->begin())}, {.profiler = &profiler});
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  REQUIRE(profiler.launches().size() == 1);
  return profiler.launches()[0];
}

// A return ends the launch: it goes after all others, and takes 8 cycles.
constexpr uint64_t kReturnCycles = 8;

// Reads the 4 bytes at p0 + scale * tid + offset.
std::string Read(int scale, int offset = 0) {
  return fmt::format("mul.wide.u32 %q, %t, {}; add.u64 %q, %p, %q; ld.global.u32 %v, [%q+{}];\n",
                     scale, offset);
}

uint64_t Of(const LaunchProfile& profile, OpClass op_class) {
  return profile.num_by_class[static_cast<size_t>(op_class)];
}

TEST_SUITE("ptx") {
  TEST_CASE("PTX machine: a profile counts sectors that are asked for, and those needed once") {
    DeviceBlock block(4096);  // begins at a multiple of 256
    const LaunchProfile near = ProfileOf(Read(4), &block);
    CHECK(near.asked_bytes == 128);
    CHECK(near.asked_sectors == 4);
    CHECK(near.needed_sectors == 4);
    CHECK(ProfileOf(Read(32), &block).asked_sectors == 32);
    CHECK(ProfileOf(Read(0), &block).asked_sectors == 1);
    CHECK(ProfileOf(Read(4, 16), &block).asked_sectors == 5);  // half a sector further
    const LaunchProfile twice = ProfileOf(Read(4) + Read(4, 64), &block);
    CHECK(twice.asked_sectors == 8);
    CHECK(twice.needed_sectors == 6);
    // Another block of the launch needs nothing more.
    const LaunchProfile wide = ProfileOf(Read(4), &block, {.grid = 2});
    CHECK(wide.asked_sectors == 8);
    CHECK(wide.needed_sectors == 4);
  }

  TEST_CASE("PTX machine: a profile counts sectors of rows that a launch asks for again") {
    DeviceBlock block(4096);
    const auto begin = reinterpret_cast<uint64_t>(block.begin());
    // Sectors 0 to 3, then 2 to 5. The second to the fifth belong to rows.
    const LaunchProfile profile = ProfileOf(Read(4) + Read(4, 64), &block, {}, "",
                                            {{begin + 32, begin + 96}, {begin + 96, begin + 160}});
    CHECK(profile.asked_sectors == 8);
    CHECK(profile.asked_row_sectors == 3 + 3);
    CHECK(profile.repeated_row_sectors == 2);
    Profiler profiler;
    profiler.SetRows({{begin, begin + 4096}});
    for (int i = 0; i < 2; ++i) {
      const std::string body =
          ".reg .b64 %p; .reg .b32 %v;\nld.param.u64 %p, [p0];\n"
          "ld.global.u32 %v, [%p];\n";
      REQUIRE(RunText(EntryText(1, body), {}, {begin}, {.profiler = &profiler}).ok());
    }
    // Another launch may ask for them once.
    CHECK(profiler.launches()[1].needed_sectors == 0);
    CHECK(profiler.launches()[1].asked_row_sectors == 1);
    CHECK(profiler.launches()[1].repeated_row_sectors == 0);
  }

  TEST_CASE("PTX machine: a profile counts the turns of shared memory, and conflicts") {
    DeviceBlock block(4096);
    uint64_t turns = 0;  // of the last access
    const auto conflicts = [&](const std::string& type, int stride) {
      const std::string body = fmt::format(
          "mul.lo.u32 %u, %t, {}; mov.u32 %v, words; add.u32 %u, %u, %v;\n"
          "st.shared.{} [%u], {};\n",
          stride, type,
          type == "u32"      ? "%t"
          : type == "v2.u32" ? "{%t, %t}"
                             : "{%t, %t, %t, %t}");
      const LaunchProfile profile =
          ProfileOf(body, &block, {}, ".shared .align 16 .b8 words[8192];");
      CHECK(profile.num_shared_accesses == 1);
      turns = profile.num_shared_turns;
      CHECK(profile.asked_sectors == 0);
      return profile.num_bank_conflicts;
    };
    // Lane i uses bank i * stride / 4 % 32.
    CHECK(conflicts("u32", 4) == 0);
    CHECK(turns == 1);
    CHECK(conflicts("u32", 8) == 1);
    CHECK(conflicts("u32", 16) == 3);
    CHECK(conflicts("u32", 128) == 31);
    CHECK(conflicts("u32", 132) == 0);
    CHECK(conflicts("u32", 0) == 0);      // one word
    CHECK(conflicts("v2.u32", 8) == 0);   // two turns of 16 lanes are the least
    CHECK(conflicts("v4.u32", 16) == 0);  // and four of 8
    CHECK(turns == 4);
    CHECK(conflicts("v4.u32", 128) == 28);  // 8 lanes at the same four banks, four times
    CHECK(turns == 32);
  }

  TEST_CASE("PTX machine: a profile counts instructions by class, and lanes that wait") {
    DeviceBlock block(4096);
    const LaunchProfile profile = ProfileOf(
        "setp.lt.u32 %b, %t, 8; @!%b bra END;\n"
        "add.u32 %u, %t, 1; add.u64 %q, %p, 8; mul.lo.u32 %v, %u, %u; mul.lo.u64 %a, %q, %q;\n"
        "popc.b32 %w, %v;\nEND:\nbar.sync 0;\n",
        &block, {.block = 64});
    CHECK(Of(profile, OpClass::kAlu) == 2 + 1);  // the second warp has no lane below 8
    CHECK(Of(profile, OpClass::kWideAlu) == 1);
    CHECK(Of(profile, OpClass::kMultiply) == 1);
    CHECK(Of(profile, OpClass::kWideMultiply) == 1);
    CHECK(Of(profile, OpClass::kBitCount) == 1);
    CHECK(Of(profile, OpClass::kSync) == 2);
    CHECK(profile.num_idle_lanes == 5 * 24);
    CHECK(profile.num_instructions() == 2 * 6 + 5);  // ld, mov, setp, bra, bar, ret
  }

  TEST_CASE("PTX machine: a profile's chain waits for operands, memory and barriers") {
    DeviceBlock block(4096);
    const uint64_t begin = ProfileOf("", &block).chain_cycles;
    const auto more = [&](const std::string& body, const LaunchShape& shape = {}) {
      return ProfileOf(body, &block, shape).chain_cycles - begin;
    };
    // Independent instructions take a cycle each, five with the two before them. Each of a chain
    // waits 4 cycles for the one before; the first waits 2 for mov. The sums apart do not wait for
    // the chain that follows.
    const std::string apart = "add.u32 %u, %t, 1; add.u32 %v, %t, 2; add.u32 %w, %t, 3;";
    const std::string chained = "add.u32 %u, %t, 1; add.u32 %v, %u, 2; add.u32 %w, %v, 3;";
    CHECK(more(chained) - more(apart) == (2 + 4 + 4 + 1) - 5);
    const std::string longer = chained + "add.u32 %w, %w, 1;";
    CHECK(more(longer) - more(chained) == 4);
    CHECK(more(apart + longer) == more(longer));
    // Nothing moves across a branch.
    CHECK(more(apart + "bra NEXT;\nNEXT:\n" + longer) > more(longer) + 3);
    // The second read of a sector comes from the L2 cache, or from the processor's own if the read
    // is weak and nothing was acquired since. The sum waits for it.
    const std::string sum = "add.u32 %w, %v, 1;";
    const std::string acquire = "ld.acquire.gpu.global.u32 %u, [%p+4000];\n";
    const std::string strong = "ld.relaxed.gpu.global.u32 %v, [%q];\n";
    const std::string wait = "setp.eq.u32 %b, %w, 77; @%b bra NEXT;\nNEXT:\n";
    const uint64_t first = more(acquire + Read(4) + sum);
    CHECK(first > 479);
    const auto second = [&](const std::string& body) {
      return more(acquire + Read(4) + sum + wait + body + sum) - first;
    };
    CHECK(second(strong) > 263);
    CHECK(second(strong) < 479);
    CHECK(second(Read(4)) > 38);
    CHECK(second(Read(4)) < 263);
    CHECK(second(acquire + Read(4)) > 263);
    CHECK(second(acquire + Read(4)) < 479);
    // At a barrier the quick warp waits for the slow one, and both go on together.
    const std::string slow = "setp.ge.u32 %b, %t, 32; @%b bra MEET;\n" + Read(4) + sum;
    const uint64_t met = more(slow + "MEET:\nbar.sync 0;" + Read(4, 1024) + sum, {.block = 64});
    CHECK(met > 2 * 479);
    const LaunchProfile profile = ProfileOf(apart, &block);
    CHECK(profile.chain_instructions == 6);  // ld, mov, three sums, ret
  }

  TEST_CASE("PTX machine: a profile has the time of the longest warp in each function") {
    DeviceBlock block(4096);
    const std::string functions =
        ".func slow() {\n.reg .b32 %x; mov.u32 %x, 1;\nadd.u32 %x, %x, 1; add.u32 %x, %x, "
        "1;\nret;\n}\n"
        ".func both() {\ncall slow, ();\ncall slow, ();\nret;\n}\n";
    const auto times = [&](const std::string& body, const LaunchShape& shape = {}) {
      return ProfileOf(body, &block, shape, functions).chain_functions;
    };
    const FunctionTimes once = times("call slow, ();\n");
    CHECK(once.at("slow") >= 2 + 4 + 1 + kReturnCycles);
    CHECK(once.count("both") == 0);
    // A call within a call counts for both.
    const FunctionTimes nested = times("call both, ();\n");
    CHECK(nested.at("slow") == 2 * once.at("slow"));
    CHECK(nested.at("both") > nested.at("slow") + kReturnCycles);
    // The second warp does not call, and ends early.
    const FunctionTimes first =
        times("setp.ge.u32 %b, %t, 32; @%b bra END;\ncall slow, ();\nEND:\n", {.block = 64});
    CHECK(first.at("slow") == once.at("slow"));
  }

  // Once, a generic address of local memory counted as one of the L2 cache.
  TEST_CASE("PTX machine: local memory is as near by a generic address as by its own") {
    DeviceBlock block(4096);
    const auto profile = [&](const std::string& body) {
      const std::string depot =
          ".local .align 8 .b8 depot[16];\n"
          "mov.u64 %q, depot; cvta.local.u64 %a, %q; st.u32 [%a], %t; st.local.u32 [%q], %t;\n";
      return ProfileOf(depot + body + "add.u32 %w, %v, 1;\n", &block);
    };
    const LaunchProfile generic = profile("ld.u32 %v, [%a];\n");
    // mov and cvta take 2 cycles each, then the read its time; the sum goes last.
    CHECK(generic.chain_cycles == 2 + 2 + 38 + 1 + kReturnCycles);
    CHECK(profile("ld.local.u32 %v, [%q];\n").chain_cycles == generic.chain_cycles);
    CHECK(generic.asked_sectors == 0);
    CHECK(generic.num_shared_accesses == 0);
    // If half of the lanes read global memory, all wait for those.
    const LaunchProfile mixed =
        profile("setp.lt.u32 %b, %t, 16; selp.b64 %a, %p, %a, %b;\nld.u32 %v, [%a];\n");
    CHECK(mixed.chain_cycles > generic.chain_cycles + 479 - 38);
    CHECK(mixed.asked_sectors == 1);
    CHECK(mixed.asked_bytes == 4 * 16);
  }

  // Once, the second load found the sector as soon as the first one had asked for it.
  TEST_CASE("PTX machine: a load of a sector that is on its way waits for it") {
    DeviceBlock block(4096);
    const auto cycles = [&](const std::string& body) {
      return ProfileOf(body, &block).chain_cycles;
    };
    const uint64_t one = cycles("ld.global.u32 %v, [%p];\nadd.u32 %w, %v, 1;\n");
    CHECK(one > 479);
    CHECK(cycles("ld.global.u32 %v, [%p];\nld.global.u32 %u, [%p+4];\nadd.u32 %w, %u, 1;\n") ==
          one);
    // Once it is there, another load takes the 38 cycles of the processor's cache.
    const uint64_t again = cycles(
        "ld.global.u32 %v, [%p];\nand.b32 %w, %v, 0; cvt.u64.u32 %q, %w; add.u64 %q, %p, %q;\n"
        "ld.global.u32 %u, [%q+4];\nadd.u32 %w, %u, 1;\n");
    CHECK(again >= one + 38);
    CHECK(again < one + 38 + 40);
    // What a store left is there at once.
    CHECK(cycles("st.global.u32 [%p], %t;\nld.global.u32 %u, [%p+4];\nadd.u32 %w, %u, 1;\n") < 100);
  }

  // Once, four blocks at a time ran, so that all work went to the first four.
  TEST_CASE("PTX machine: all blocks of a profiled launch are resident") {
    DeviceBlock block(4096);
    std::memset(block.begin(), 0, 4096);
    // Lane 0 of each block counts the block and waits until all have come, or gives up.
    const LaunchProfile profile = ProfileOf(
        "setp.ne.u32 %b, %t, 0; @%b bra END;\natom.relaxed.gpu.global.add.u32 %v, [%p], 1;\n"
        "mov.u32 %w, 0;\nWAIT: add.u32 %w, %w, 1; setp.gt.u32 %b, %w, 1000; @%b bra LATE;\n"
        "ld.relaxed.gpu.global.u32 %v, [%p]; setp.lt.u32 %b, %v, 12; @%b bra WAIT;\nbra END;\n"
        "LATE: st.relaxed.gpu.global.u32 [%p+4], 1;\nEND:\n",
        &block, {.grid = 12});
    CHECK(profile.num_blocks == 12);
    const auto* const words = reinterpret_cast<const uint32_t*>(block.begin());
    CHECK(words[0] == 12);
    CHECK(words[1] == 0);
  }

  TEST_CASE("PTX machine: a profile changes no answer") {
    DeviceBlock block(4096);
    uint32_t* const words = reinterpret_cast<uint32_t*>(block.begin());
    words[0] = 0;
    ProfileOf("atom.global.add.u32 %u, [%p], %t;\n", &block, {.grid = 3, .block = 64});
    CHECK(words[0] == 3 * 63 * 64 / 2);
  }
}

}  // namespace
}  // namespace specd::ptx
