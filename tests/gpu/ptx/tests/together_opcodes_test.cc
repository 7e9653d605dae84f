// Lanes, warps and blocks that come together in the PTX machine.
#include <doctest/doctest.h>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

// Runs a body whose threads each put a word at [%p]. %i is the thread in the grid.
std::vector<uint32_t> RunThreads(const std::string& body, const LaunchShape& shape,
                                 const std::string& globals = "",
                                 const LaunchOptions& options = {}) {
  const std::string begin =
      ".reg .b64 %p, %o; .reg .b32 %i, %t, %n, %d; ld.param.u64 %p, [p0];\n"
      "mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x;\n"
      "mad.lo.s32 %i, %i, %n, %t; mul.wide.u32 %o, %i, 4; add.s64 %p, %p, %o;\n";
  const std::string end = "\nst.global.u32 [%p], %d;";
  const size_t count = size_t{shape.grid} * shape.block;
  DeviceBlock block(count * 4);
  const absl::Status status = RunText(EntryText(1, begin + body + end, globals), shape,
                                      {reinterpret_cast<uint64_t>(block.begin())}, options);
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  const auto* const words = reinterpret_cast<const uint32_t*>(block.begin());
  return {words, words + count};
}

// The manual's shfl.sync, lane by lane, for a segment of so many lanes.
struct Shuffled {
  uint32_t from;
  bool is_in_segment;
};
Shuffled UpBy(uint32_t lane, uint32_t by, uint32_t width) {
  const bool is_there = lane % width >= by;
  return {is_there ? lane - by : lane, is_there};
}
Shuffled DownBy(uint32_t lane, uint32_t by, uint32_t width) {
  const bool is_there = lane % width + by < width;
  return {is_there ? lane + by : lane, is_there};
}

TEST_SUITE("unit") {
  TEST_CASE("PTX machine: shuffles up, down, crosswise and by index, in segments of any width") {
    for (const uint32_t width : {2u, 4u, 8u, 16u, 32u}) {
      for (const uint32_t by : {0u, 1u, 3u, 7u, 16u, 31u}) {
        CAPTURE(width);
        CAPTURE(by);
        const auto run = [&](const std::string& mode, uint32_t clamp) {
          // The lane's value is 100 + lane; the predicate adds 1000.
          return RunThreads(fmt::format(".reg .pred %q; .reg .b32 %v, %s; add.s32 %v, %t, 100;\n"
                                        "shfl.sync.{}.b32 %v|%q, %v, {}, {}, -1;\n"
                                        "selp.b32 %s, 1000, 0, %q; add.s32 %d, %v, %s;",
                                        mode, by, (32 - width) << 8 | clamp),
                            {});
        };
        const auto up = run("up", 0);
        const auto down = run("down", 31);
        const auto butterfly = run("bfly", 31);
        const auto index = run("idx", 31);
        for (uint32_t lane = 0; lane < 32; ++lane) {
          const auto expect = [&](const Shuffled& s) {
            return 100 + s.from + (s.is_in_segment ? 1000 : 0);
          };
          const uint32_t first = lane / width * width;
          CHECK(up[lane] == expect(UpBy(lane, by, width)));
          CHECK(down[lane] == expect(DownBy(lane, by, width)));
          // Past the segment's end only; before it lies inside for bfly.
          const uint32_t across = lane ^ by;
          CHECK(butterfly[lane] ==
                expect(across < first + width ? Shuffled{across, true} : Shuffled{lane, false}));
          CHECK(index[lane] == expect({first + by % width, true}));
        }
      }
    }
  }

  TEST_CASE("PTX machine: votes and reductions of the lanes of a mask") {
    // Lanes 4 to 31 take part, and lanes that are multiples of 3 vote.
    const std::string begin =
        ".reg .pred %q, %r; .reg .b32 %v; rem.u32 %v, %t, 3; setp.eq.s32 %q, %v, 0;\n"
        "mov.u32 %d, 77; setp.lt.u32 %r, %t, 4; @%r bra L;\n";
    const std::string end = "\nL:";
    const auto run = [&](const std::string& body) { return RunThreads(begin + body + end, {}); };
    uint32_t votes = 0;
    for (uint32_t lane = 4; lane < 32; ++lane) votes |= (lane % 3 == 0 ? 1u : 0u) << lane;
    const auto check = [&](const std::string& body, uint32_t wanted) {
      const auto words = run(body);
      for (uint32_t lane = 0; lane < 32; ++lane) CHECK(words[lane] == (lane < 4 ? 77 : wanted));
    };
    uint32_t xor_of_squares = 0;
    for (uint32_t lane = 4; lane < 32; ++lane) xor_of_squares ^= lane * lane;
    const std::string as_number = " selp.b32 %d, 1, 0, %q;";
    check("vote.sync.ballot.b32 %d, %q, 0xFFFFFFF0;", votes);
    check("vote.sync.any.pred %q, %q, 0xFFFFFFF0;" + as_number, 1);
    check("vote.sync.all.pred %q, %q, 0xFFFFFFF0;" + as_number, 0);
    check("vote.sync.uni.pred %q, %q, 0xFFFFFFF0;" + as_number, 0);
    check("vote.sync.all.pred %q, !%r, 0xFFFFFFF0;" + as_number, 1);
    check("vote.sync.uni.pred %q, %r, 0xFFFFFFF0;" + as_number, 1);
    check("sub.s32 %v, 10, %t; redux.sync.max.s32 %d, %v, 0xFFFFFFF0;", 6);
    check("sub.s32 %v, 10, %t; redux.sync.min.s32 %d, %v, 0xFFFFFFF0;", static_cast<uint32_t>(-21));
    check("sub.s32 %v, 10, %t; redux.sync.max.u32 %d, %v, 0xFFFFFFF0;", static_cast<uint32_t>(-1));
    check("redux.sync.add.u32 %d, %t, 0xFFFFFFF0;", 31 * 32 / 2 - 6);
    check("redux.sync.or.b32 %d, %t, 0xFFFFFFF0;", 31);
    check("redux.sync.and.b32 %d, %t, 0xFFFFFFF0;", 0);
    check("vote.sync.any.pred %q, %r, 0xFFFFFFF0;" + as_number, 0);
    check("redux.sync.add.s32 %d, %t, 0xFFFFFFF0;", 31 * 32 / 2 - 6);
    check("sub.s32 %v, 10, %t; redux.sync.min.u32 %d, %v, 0xFFFFFFF0;", 0);
    check("or.b32 %v, %t, 64; redux.sync.and.b32 %d, %v, 0xFFFFFFF0;", 64);
    check("mul.lo.s32 %v, %t, %t; redux.sync.xor.b32 %d, %v, 0xFFFFFFF0;", xor_of_squares);
  }

  TEST_CASE("PTX machine: lanes that part meet again, and wait for each other at a shuffle") {
    // Even and odd lanes take loops of different lengths, then read lane 5.
    const std::string body =
        ".reg .pred %q; .reg .b32 %v, %k; and.b32 %v, %t, 1; mov.u32 %k, %v; mov.u32 %d, %t;\n"
        "setp.eq.s32 %q, %v, 0; @%q bra EVEN;\n"
        "ODD: add.s32 %d, %d, 1; add.s32 %k, %k, 1; setp.lt.s32 %q, %k, 9; @%q bra ODD;\n"
        "bra JOIN;\n"
        "EVEN: add.s32 %d, %d, 3; add.s32 %k, %k, 1; setp.lt.s32 %q, %k, 4; @%q bra EVEN;\n"
        "JOIN: shfl.sync.idx.b32 %d, %d, 5, 31, -1;";
    for (const uint32_t word : RunThreads(body, {})) CHECK(word == 5 + 8);
  }

  TEST_CASE("PTX machine: a call waits for lanes whose way to it lies behind it") {
    const std::string function =
        ".func (.param .b32 r) of_lane_7(.param .b32 a)\n{ .reg .b32 %x; ld.param.u32 %x, [a];\n"
        "shfl.sync.idx.b32 %x, %x, 7, 31, -1; st.param.b32 [r], %x; ret; }";
    const std::string body =
        ".reg .pred %q; .reg .b32 %v; and.b32 %v, %t, 1; setp.eq.s32 %q, %v, 1; @%q bra FAR;\n"
        "mov.u32 %v, 50;\n"
        "JOIN: { .param .b32 x; .param .b32 y; st.param.b32 [x], %v;\n"
        "call.uni (y), of_lane_7, (x); ld.param.b32 %d, [y]; }\n"
        "bra END;\n"
        "FAR: mov.u32 %v, 60; bra JOIN;\n"
        "END: add.s32 %d, %d, %t;";
    const auto words = RunThreads(body, {}, function);
    for (uint32_t lane = 0; lane < 32; ++lane) CHECK(words[lane] == 60 + lane);
  }

  TEST_CASE("PTX machine: a cluster's blocks read each other's shared memory by mapa") {
    // Each block writes its rank, and reads that of the next one: by a mapped offset, by a mapped
    // generic address, and its own by the unmapped offset.
    const std::string body =
        ".reg .b32 %r, %w, %x, %c; .reg .b64 %g, %h; mov.u32 %r, %cluster_ctarank;\n"
        "mov.u32 %c, %cluster_nctarank; mov.u32 %w, word; add.s32 %x, %r, 10;\n"
        "st.shared.u32 [%w], %x; barrier.cluster.arrive; barrier.cluster.wait;\n"
        "add.s32 %r, %r, 1; rem.u32 %r, %r, %c;\n"
        "mapa.shared::cluster.u32 %x, %w, %r; ld.shared::cluster.u32 %d, [%x];\n"
        "mov.u64 %g, word; cvta.shared.u64 %h, %g; mapa.u64 %h, %h, %r; ld.u32 %x, [%h];\n"
        "mad.lo.s32 %d, %x, 100, %d; ld.shared::cluster.u32 %x, [%w]; mad.lo.s32 %d, %x, 10000, "
        "%d;\n"
        "barrier.cluster.arrive; barrier.cluster.wait;";
    const auto words = RunThreads(body, {.grid = 8, .block = 1, .cluster = 4},
                                  ".shared .align 4 .b8 word[4];", {.quantum = 1});
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t next = 10 + (i % 4 + 1) % 4;
      CHECK(words[i] == next + 100 * next + 10000 * (10 + i % 4));
    }
  }
}

}  // namespace
}  // namespace specd::ptx
