// The PTX machine refuses modules that it does not know, and ends launches that no device may run.
#include <doctest/doctest.h>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

std::string LoadError(const std::string& text) {
  const auto module = LoadModule("some.ptx", text);
  REQUIRE_FALSE(module.ok());
  return std::string(module.status().message());
}

// The error of a launch of `test`, which gets the address of a block.
std::string RunError(const std::string& body, const LaunchShape& shape,
                     const std::string& globals = "") {
  DeviceBlock block(256);
  std::memset(block.begin(), 0, 256);
  const std::string begin =
      ".reg .b64 %p; .reg .b32 %t; ld.param.u64 %p, [p0]; mov.u32 %t, %tid.x;\n";
  const absl::Status status = RunText(EntryText(1, begin + body, globals), shape,
                                      {reinterpret_cast<uint64_t>(block.begin())}, {.quantum = 3});
  REQUIRE_FALSE(status.ok());
  const std::string text(status.message());
  // Every error names the kernel.
  CHECK(text.find("kernel test") != std::string::npos);
  return text;
}

void CheckHas(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CHECK(text.find(part) != std::string::npos);
}

TEST_SUITE("unit") {
  TEST_CASE("PTX machine: what it does not know is an error with file and line") {
    const auto error_of = [](const std::string& statement) {
      return LoadError(EntryText(
          1, ".reg .b32 %a, %b; .reg .b64 %p; .reg .pred %q; .reg .f32 %f;\n" + statement));
    };
    // EntryText puts the body on line 6, and the statement on the next.
    CheckHas(error_of("frobnicate.s32 %a, %b;"), "some.ptx:8: frobnicate.s32: unknown instruction");
    CheckHas(error_of("\nadd.sat.s32 %a, %a, %b;"), "some.ptx:9: add.sat.s32: unknown instruction");
    CheckHas(error_of("add.f32 %f, %f, %f;"), "unknown instruction");
    CheckHas(error_of("ld.global.L1::evict_last.u32 %a, [%p];"), "some.ptx:8: ");
    CheckHas(error_of("shfl.sync.idx.b32 %a|%q, %b, 0, 31;"), "operand 5 is missing");
    CheckHas(error_of("shfl.idx.b32 %a, %b, 0, 31;"), "without .sync");
    CheckHas(error_of("bar.sync 1;"), "barrier 0");
    CheckHas(error_of("fence.acq_rel;"), "a fence has a scope");
    CheckHas(error_of("ld.relaxed.u32 %a, [%p];"), "a strong access has a scope");
    CheckHas(error_of("st.gpu.u32 [%p], %a;"), "and a weak one has none");
    CheckHas(error_of("bar.arrive 0, 32;"), "unknown");
    CheckHas(error_of("atom.add.f32 %f, [%p], %f;"), "unknown operation add.f32");
    CheckHas(error_of("atom.cas.b32 %a, [%p], %a, %b;"), "unknown operation cas.b32");
    CheckHas(error_of("atom.add.b32 %a, [%p], %a;"), "unknown operation add.b32");
    CheckHas(error_of("mapa.shared::cluster.u64 %p, %p, %a;"), "only .u32 of .shared::cluster");
    CheckHas(error_of("mov.u32 %a, %clock;"), "unknown special register %clock");
    CheckHas(error_of("mov.u32 %a, nothing;"), "'nothing' is not declared");
    CheckHas(error_of("bra NOWHERE;"), "no label 'NOWHERE'");
    CheckHas(error_of("add.s64 %p, %a, %p;"), "no operand of 8 bytes");
    CheckHas(error_of("add.s32 %p, %a, %a;"), "no register of 4 bytes");
    CheckHas(error_of("call.uni f, ();"), "no function 'f'");
    CheckHas(error_of("add.s32 %a, %b;"), "2 operands where 3 are expected");
    CheckHas(error_of(".maxwarps 3;"), "unknown directive .maxwarps");
    CheckHas(LoadError(".version 8.0\n.texref t;\n"), "some.ptx:2: unknown directive .texref");
    CheckHas(LoadError(".visible .entry test(.param .u64 p0) { mov.u32"), "ends too early");
  }

  TEST_CASE("PTX machine: an access outside of memory names the address and the lane") {
    const std::string at_thread =
        ".reg .b64 %o; .reg .b32 %v; mul.wide.u32 %o, %t, 16; add.s64 %p, %p, %o;\n";
    const std::string text = RunError(at_thread + "ld.global.u32 %v, [%p];", {});
    CheckHas(text, "no memory of the device: 0 bytes behind the end of a block of 256");
    CheckHas(text, "lanes 00010000");  // the 17th
    CheckHas(text, "test.ptx:9: ld.global.u32");
    CheckHas(RunError(at_thread + "st.global.u32 [%p+252], 1;", {}), "lanes 00000002");
    CheckHas(RunError(at_thread + "st.u32 [%p+-4], 1;", {}), "before a block");
    CheckHas(RunError("st.global.u32 [%p+2], 1;", {}), "not aligned");
    CheckHas(RunError("st.shared.u32 [words+64], 1;", {}, ".shared .align 4 .b8 words[64];"),
             "outside shared memory");
    CheckHas(RunError(".reg .b64 %a; mov.u64 %a, 65532; st.local.u64 [%a+4], %p;", {}),
             "outside local memory");
  }

  TEST_CASE("PTX machine: memory of a block that was freed is no longer there") {
    uint64_t address = 0;
    {
      DeviceBlock block(64);
      address = reinterpret_cast<uint64_t>(block.begin());
    }
    const std::string body = ".reg .b64 %p; ld.param.u64 %p, [p0]; st.global.u32 [%p], 1;";
    CHECK_FALSE(RunText(EntryText(1, body), {}, {address}).ok());
  }

  TEST_CASE("PTX machine: a read of shared or local memory that was never written is refused") {
    const std::string shared = ".shared .align 4 .b8 words[64];";
    CheckHas(RunError(".reg .b32 %v; st.shared.u32 [words], 1; ld.shared.u32 %v, [words+4];",
                      {.block = 1}, shared),
             "never written");
    CheckHas(RunError(".local .align 8 .b8 d[8]; .reg .b64 %a; .reg .b32 %v; mov.u64 %a, d;\n"
                      "st.local.u32 [%a], 1; ld.local.u32 %v, [%a+4];",
                      {.block = 1}),
             "never written");
    // One byte of an element is not enough, unless a copy takes it with the padding of a structure.
    const std::string partly =
        ".reg .b32 %v, %w; .local .align 8 .b8 d[8]; .reg .b64 %a, %g; mov.u64 %a, d;\n"
        "st.shared.u8 [words], 1; st.shared.u32 [words+4], 2; st.local.u8 [%a], 1;\n"
        "st.local.u32 [%a+4], 2; cvta.local.u64 %g, %a;\n";
    for (const char* const load :
         {"ld.shared.u32 %v, [words];", "ld.local.u32 %v, [%a];", "ld.u32 %v, [%g];",
          "ld.shared.v2.u32 {%v, %w}, [words];", "ld.local.v2.u32 {%v, %w}, [%a];"}) {
      CAPTURE(load);
      const std::string body = partly + load;
      CheckHas(RunError(body + "add.s32 %v, %v, 1;", {.block = 1}, shared), "never written");
      CHECK(RunText(EntryText(1, body + "st.shared.u32 [words+8], %v;", shared), {.block = 1}, {0})
                .ok());
    }
    // The other element of a vector is written.
    CHECK(
        RunText(EntryText(1, partly + "ld.local.v2.u32 {_, %v}, [%a]; add.s32 %v, %v, 1;", shared),
                {.block = 1}, {0})
            .ok());
    CheckHas(RunError(partly + ".reg .b32 %x; mov.u32 %x, words;\n"
                               "atom.shared.add.u32 %v, [%x], 1;",
                      {.block = 1}, shared),
             "never written");
    // A second call of a function finds nothing of the first one's local memory.
    const std::string function =
        ".func f(.param .b32 w)\n{ .local .align 4 .b8 d[4]; .reg .b64 %a; .reg .b32 %v, %w;\n"
        ".reg .pred %q; mov.u64 %a, d; ld.param.u32 %w, [w]; setp.eq.s32 %q, %w, 0;\n"
        "@%q st.local.u32 [%a], %w; ld.local.u32 %v, [%a]; ret; }\n";
    CheckHas(RunError("{ .param .b32 x; st.param.b32 [x], 0; call.uni f, (x); }\n"
                      "{ .param .b32 x; st.param.b32 [x], 1; call.uni f, (x); }",
                      {.block = 1}, function),
             "never written");
  }

  TEST_CASE("PTX machine: a lane that is missing at a shuffle, a vote or a barrier is an error") {
    const std::string without_lane_3 =
        ".reg .pred %q; .reg .b32 %v; setp.eq.s32 %q, %t, 3; @%q bra L;\n";
    CheckHas(RunError(without_lane_3 + "shfl.sync.idx.b32 %v, %t, 0, 31, -1; L:", {}),
             "lanes wait for others that cannot come");
    CheckHas(RunError(without_lane_3 + "vote.sync.ballot.b32 %v, %q, -1; L:", {}), "cannot come");
    CheckHas(RunError(without_lane_3 + "bar.warp.sync -1; L:", {}), "cannot come");
    CheckHas(RunError(without_lane_3 + "bar.sync 0; L:", {}), "cannot come");
    // A mask that lacks the lane itself, or a lane that is read.
    CheckHas(RunError(".reg .b32 %v; shfl.sync.idx.b32 %v, %t, 0, 31, 0xFFFFFFFE;", {}),
             "lacks a lane");
    CheckHas(RunError(without_lane_3 + "shfl.sync.idx.b32 %v, %t, 3, 31, 0xFFFFFFF7; L:", {}),
             "lane 3 is not here");
  }

  TEST_CASE("PTX machine: a barrier that some warps do not reach is an error") {
    const std::string first_warp = ".reg .pred %q; setp.lt.u32 %q, %t, 32; @%q bra L;\n";
    CheckHas(RunError(first_warp + "bar.sync 0; L:", {.block = 64}), "ended");
    // Two blocks of a cluster wait in different places.
    CheckHas(
        RunError(
            ".reg .b32 %r; .reg .pred %q; mov.u32 %r, %cluster_ctarank; setp.eq.s32 %q, %r, 0;\n"
            "@%q bra L; barrier.cluster.arrive; barrier.cluster.wait; bar.sync 0; bra M;\n"
            "L: .reg .pred %s; setp.lt.u32 %s, %t, 32; @%s bra N; bar.sync 0;\n"
            "N: barrier.cluster.arrive; barrier.cluster.wait; M:",
            {.grid = 2, .block = 64, .cluster = 2}),
        "every warp waits at a barrier");
  }

  TEST_CASE("PTX machine: a trap, an endless call and a bad rank end the launch") {
    CheckHas(RunError("trap;", {}), "a trap");
    const std::string endless = ".func f()\n{ call.uni f, (); ret; }\n";
    CheckHas(RunError("call.uni f, ();", {}, endless), "too deep");
    CheckHas(RunError(".reg .b32 %w; mov.u32 %w, word; mapa.shared::cluster.u32 %w, %w, 1;", {},
                      ".shared .align 4 .b8 word[4];"),
             "rank 1 of a cluster of 1");
    CheckHas(RunError("mov.u64 %p, 8; call.uni %p, (), proto;", {}), "not there");
  }
}

}  // namespace
}  // namespace specd::ptx
