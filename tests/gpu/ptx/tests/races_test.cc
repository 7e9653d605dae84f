// Races that the PTX machine finds, and orders that it accepts. Each pair is one text with and
// without what orders it.
#include <doctest/doctest.h>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

constexpr char kWords[] = ".shared .align 4 .b8 words[256];";

// Units of 32 threads exchange what they write. %b is the unit's number and %t the thread's in it.
// A unit is a block, or with this text before the body a warp of the only block.
const std::string kUnitsAreWarps = "shr.u32 %b, %t, 5; and.b32 %t, %t, 31;\n";

// The last of three units to arrive reads what the others wrote, as the kernels do.
const std::string kArrival =
    "setp.eq.s32 %r, %t, 0; mul.lo.s32 %v, %b, 32; add.s32 %v, %v, %t; mul.wide.u32 %o, %v, 4;\n"
    "add.s64 %s, %p, %o; st.global.u32 [%s+64], %v;\n"
    "bar.warp.sync -1;\n"
    "mov.u32 %k, 0; @%r atom.acq_rel.gpu.add.s32 %k, [%p], 1;\n"
    "shfl.sync.idx.b32 %k, %k, 0, 31, -1;\n"
    "bar.warp.sync 0xFFFFFFFF;\n"
    "setp.ne.s32 %q, %k, 2; @%q bra END;\n"
    "xor.b32 %v, %t, 5; mul.wide.u32 %o, %v, 4; add.s64 %s, %p, %o;\n"
    "ld.global.u32 %v, [%s+64]; ld.global.u32 %w, [%s+192]; ld.global.u32 %w, [%s+320]; END:";

// Unit 0 writes a word and then a flag; unit 1 waits for the flag and reads the word.
const std::string kFences =
    "setp.ne.s32 %q, %t, 0; @%q bra END; setp.ne.s32 %r, %b, 0; @%r bra READ;\n"
    "st.global.u32 [%p+64], 7;\n"
    "fence.acq_rel.gpu;\n"
    "st.relaxed.gpu.u32 [%p], 1; bra END;\n"
    "READ: mov.u32 %k, 0;\n"
    "AGAIN: add.s32 %k, %k, 1; setp.gt.s32 %x, %k, 500; @%x bra END;\n"
    "ld.relaxed.gpu.u32 %v, [%p]; setp.eq.s32 %q, %v, 0; @%q bra AGAIN;\n"
    "membar.gl;\n"
    "ld.global.u32 %w, [%p+64]; END:";

// Whether any of several schedules finds a race; any other error fails the test.
bool Races(const std::string& body, const LaunchShape& shape) {
  const std::string begin =
      ".reg .b64 %p, %s, %o; .reg .b32 %t, %b, %v, %w, %k; .reg .pred %q, %r, %x;\n"
      "ld.param.u64 %p, [p0]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x;\n"
      "mov.u64 %s, words; mul.wide.u32 %o, %t, 4; add.s64 %s, %s, %o;\n";
  bool races = false;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    DeviceBlock block(1024);
    std::memset(block.begin(), 0, 1024);
    const absl::Status status =
        RunText(EntryText(1, begin + body, kWords), shape,
                {reinterpret_cast<uint64_t>(block.begin())}, {.seed = seed, .quantum = 4});
    if (status.ok()) continue;
    const std::string text(status.message());
    CAPTURE(text);
    REQUIRE(text.find("a race: lane ") != std::string::npos);
    REQUIRE(text.find("kernel test, lanes ") != std::string::npos);
    races = true;
  }
  return races;
}

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

TEST_SUITE("unit") {
  TEST_CASE("PTX machine: shared memory that warps exchange needs the block's barrier") {
    const std::string body =
        "st.shared.u32 [%s], 0; bar.sync 0; st.shared.u32 [%s], %t;\n"
        "bar.sync 0;\nxor.b32 %v, %t, 32; mul.wide.u32 %o, %v, 4;\n"
        "mov.u64 %s, words; add.s64 %s, %s, %o; ld.shared.u32 %v, [%s];";
    CHECK_FALSE(Races(body, {.block = 64}));
    CHECK(Races(Replaced(body, "bar.sync 0;\n", "bar.warp.sync -1;\n"), {.block = 64}));
  }

  TEST_CASE("PTX machine: the next write of exchanged memory needs a barrier too") {
    const std::string body =
        "st.shared.u32 [%s], %t; bar.sync 0; xor.b32 %v, %t, 32; mul.wide.u32 %o, %v, 4;\n"
        "mov.u64 %p, words; add.s64 %p, %p, %o; ld.shared.u32 %v, [%p];\n"
        "bar.sync 0;\nst.shared.u32 [%s], %v;";
    CHECK_FALSE(Races(body, {.block = 64}));
    CHECK(Races(Replaced(body, "bar.sync 0;\n", ""), {.block = 64}));
  }

  TEST_CASE("PTX machine: shared memory that lanes exchange needs the warp's barrier") {
    const std::string body =
        "st.shared.u32 [%s], %t; bar.warp.sync -1; xor.b32 %v, %t, 1; mul.wide.u32 %o, %v, 4;\n"
        "mov.u64 %s, words; add.s64 %s, %s, %o; ld.shared.u32 %v, [%s];";
    CHECK_FALSE(Races(body, {}));
    CHECK(Races(Replaced(body, "bar.warp.sync -1;", ""), {}));
  }

  TEST_CASE("PTX machine: words of their own, and bytes of one word, are no race") {
    CHECK_FALSE(Races("add.s64 %p, %p, %o; st.global.u32 [%p], %t; ld.global.u32 %v, [%p];",
                      {.block = 128}));
    CHECK_FALSE(
        Races("cvt.u64.u32 %o, %t; add.s64 %p, %p, %o; st.global.u8 [%p], %t;", {.block = 128}));
    CHECK_FALSE(Races("ld.global.u32 %v, [%p];", {.grid = 4, .block = 128}));
  }

  TEST_CASE("PTX machine: two blocks that write one word race, and atomics do not") {
    CHECK(Races("st.global.u32 [%p], %b;", {.grid = 2, .block = 32}));
    CHECK_FALSE(Races("st.relaxed.gpu.u32 [%p], %b;", {.grid = 2, .block = 32}));
    CHECK_FALSE(Races("atom.relaxed.gpu.add.u32 %v, [%p], 1;", {.grid = 2, .block = 32}));
    // One weak access is enough.
    CHECK(
        Races("setp.eq.s32 %q, %b, 0; @%q st.global.u32 [%p], 1;\n"
              "@!%q atom.relaxed.gpu.add.u32 %v, [%p], 1;",
              {.grid = 2, .block = 32}));
    CHECK(Races("setp.eq.s32 %q, %b, 0; @%q st.global.u32 [%p], 1; @!%q ld.global.u32 %v, [%p];",
                {.grid = 2, .block = 32}));
  }

  // B = 64 on 148 processors: a read of the rows has 4,736 warps. Block 128 begins with warp 4,096.
  TEST_CASE("PTX machine: the first and the last of thousands of warps race") {
    const std::string body =
        "setp.eq.s32 %q, %b, 0; setp.eq.s32 %r, %b, 128; or.pred %q, %q, %r;\n"
        "@%q st.global.u32 [%p], %b;";
    CHECK(Races(body, {.grid = 129, .block = 1024}));
    CHECK_FALSE(
        Races(Replaced(body, "st.global", "st.relaxed.gpu.global"), {.grid = 129, .block = 1024}));
  }

  TEST_CASE("PTX machine: strong accesses race beyond the scope of either") {
    const std::string body =
        "setp.eq.s32 %q, %b, 0; @%q atom.relaxed.cta.add.u32 %v, [%p], 1;\n"
        "@!%q st.relaxed.cluster.u32 [%p], 1;";
    CHECK_FALSE(Races(kUnitsAreWarps + body, {.block = 64}));
    CHECK(Races(body, {.grid = 2}));
    CHECK(Races(body, {.grid = 2, .cluster = 2}));
    // The scope of the other one is not enough.
    CHECK(Races(Replaced(body, ".cluster", ".sys"), {.grid = 2, .cluster = 2}));
    CHECK_FALSE(Races(Replaced(body, ".cta", ".gpu"), {.grid = 2, .cluster = 2}));
    CHECK(Races(Replaced(body, ".cta", ".gpu"), {.grid = 2}));
  }

  TEST_CASE("PTX machine: an arrival orders what was written before it, and the warp's barriers") {
    const LaunchShape shape{.grid = 3, .block = 32};
    CHECK_FALSE(Races(kArrival, shape));
    CHECK(Races(Replaced(kArrival, "atom.acq_rel.gpu", "atom.relaxed.gpu"), shape));
    CHECK(Races(Replaced(kArrival, "atom.acq_rel.gpu", "atom.acquire.gpu"), shape));
    CHECK(Races(Replaced(kArrival, "atom.acq_rel.gpu", "atom.release.gpu"), shape));
    CHECK(Races(Replaced(kArrival, "bar.warp.sync -1;\n", ""), shape));
    CHECK(Races(Replaced(kArrival, "bar.warp.sync 0xFFFFFFFF;\n", ""), shape));
  }

  TEST_CASE("PTX machine: an arrival orders the warps that its scope reaches, and no others") {
    const auto with = [](const char* scope) { return Replaced(kArrival, ".gpu", scope); };
    for (const char* const scope : {".cta", ".cluster", ".gpu", ".sys"}) {
      CHECK_FALSE(Races(kUnitsAreWarps + with(scope), {.block = 96}));
    }
    const LaunchShape cluster{.grid = 3, .block = 32, .cluster = 3};
    CHECK(Races(with(".cta"), cluster));
    CHECK_FALSE(Races(with(".cluster"), cluster));
    const LaunchShape blocks{.grid = 3, .block = 32};
    CHECK(Races(with(".cta"), blocks));
    CHECK(Races(with(".cluster"), blocks));
    CHECK_FALSE(Races(with(".sys"), blocks));
  }

  TEST_CASE("PTX machine: fences around relaxed accesses order like release and acquire") {
    const LaunchShape shape{.grid = 2, .block = 32};
    CHECK_FALSE(Races(kFences, shape));
    CHECK(Races(Replaced(kFences, "fence.acq_rel.gpu;\n", ""), shape));
    CHECK(Races(Replaced(kFences, "membar.gl;\n", ""), shape));
    // A release and an acquire do without.
    std::string ordered = Replaced(kFences, "fence.acq_rel.gpu;\n", "");
    ordered = Replaced(Replaced(ordered, "membar.gl;\n", ""), "st.relaxed", "st.release");
    ordered = Replaced(ordered, "ld.relaxed", "ld.acquire");
    CHECK_FALSE(Races(ordered, shape));
    ordered =
        Replaced(Replaced(ordered, "release.gpu", "release.sys"), "acquire.gpu", "acquire.sys");
    CHECK_FALSE(Races(ordered, shape));
    CHECK(Races(Replaced(ordered, "ld.acquire.sys", "ld.volatile"), shape));
    // A volatile access is a relaxed one.
    const std::string by_volatile = Replaced(kFences, "ld.relaxed.gpu", "ld.volatile.global");
    CHECK_FALSE(Races(by_volatile, shape));
    CHECK(Races(Replaced(by_volatile, "membar.gl;\n", ""), shape));
  }

  TEST_CASE("PTX machine: a fence orders the warps that its scope reaches, and no others") {
    const auto with = [](const char* writer, const char* reader) {
      return Replaced(Replaced(kFences, "fence.acq_rel.gpu", writer), "membar.gl", reader);
    };
    const LaunchShape cluster{.grid = 2, .block = 32, .cluster = 2};
    const LaunchShape blocks{.grid = 2, .block = 32};
    struct Pair {
      const char* writer;
      const char* reader;
      bool is_enough_in_cluster;
      bool is_enough_for_blocks;
    };
    for (const Pair& pair : {Pair{"fence.acq_rel.cta", "membar.gl", false, false},
                             Pair{"fence.acq_rel.gpu", "membar.cta", false, false},
                             Pair{"fence.acq_rel.cluster", "fence.sc.gpu", true, false},
                             Pair{"fence.sc.sys", "fence.cluster", true, false},
                             Pair{"fence.acq_rel.sys", "membar.sys", true, true},
                             // A narrow fence takes nothing from the wide one before it.
                             Pair{"fence.acq_rel.gpu; fence.acq_rel.cta", "membar.gl", true, true},
                             Pair{"fence.acq_rel.gpu", "membar.cta; membar.gl", true, true}}) {
      CAPTURE(pair.writer);
      CAPTURE(pair.reader);
      const std::string body = with(pair.writer, pair.reader);
      CHECK_FALSE(Races(kUnitsAreWarps + body, {.block = 64}));
      CHECK(Races(body, cluster) != pair.is_enough_in_cluster);
      CHECK(Races(body, blocks) != pair.is_enough_for_blocks);
    }
  }

  TEST_CASE("PTX machine: blocks of a cluster order by its barrier") {
    const std::string body =
        "st.shared.u32 [%s], 0; barrier.cluster.arrive; barrier.cluster.wait;\n"
        "mov.u32 %w, words; mov.u32 %v, %cluster_ctarank; st.shared.u32 [%s], %v;\n"
        "barrier.cluster.arrive;\n"
        "barrier.cluster.wait;\n"
        "xor.b32 %v, %v, 1; mapa.shared::cluster.u32 %w, %w, %v; mul.lo.s32 %k, %t, 4;\n"
        "add.s32 %w, %w, %k; ld.shared::cluster.u32 %v, [%w];\n"
        "barrier.cluster.arrive; barrier.cluster.wait;";
    const LaunchShape shape{.grid = 2, .block = 64, .cluster = 2};
    CHECK_FALSE(Races(body, shape));
    CHECK(Races(Replaced(body, "barrier.cluster.wait;\nxor", "xor"), shape));
  }

  TEST_CASE(
      "PTX machine: a lane may write the bits that its warp has read, and another warp may not") {
    const std::string body =
        "setp.eq.s32 %q, %t, 3; @%q st.shared.u32 [words], 5; bar.sync 0;\n"
        "ld.shared.u32 %v, [words];\n"
        "@%q st.shared.u32 [words], %v;";
    CHECK_FALSE(Races(body, {}));
    CHECK(Races(Replaced(body, "[words], %v", "[words], 6"), {}));
    CHECK(Races(body, {.block = 64}));
  }

  TEST_CASE("PTX machine: launches order all accesses") {
    const std::string body = ".reg .b64 %p; ld.param.u64 %p, [p0]; st.global.u32 [%p], 1;";
    DeviceBlock block(64);
    const std::unique_ptr<Module> module = LoadOrFail(EntryText(1, body));
    const auto address = reinterpret_cast<uint64_t>(block.begin());
    const void* const arguments[] = {&address};
    for (int i = 0; i < 3; ++i) {
      CHECK(RunLaunch(*module->FindEntry("test"), {.block = 1}, arguments, {}).ok());
    }
  }
}

}  // namespace
}  // namespace specd::ptx
