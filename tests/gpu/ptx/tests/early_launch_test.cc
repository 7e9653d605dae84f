// Launches that may begin before the launch before them has ended: griddepcontrol.wait.
#include <doctest/doctest.h>

#include "tests/gpu/ptx/tests/opcode_case.h"

namespace specd::ptx {
namespace {

// The error of `test`, which gets the address of a block, in a launch of a warp.
std::string ErrorOf(const std::string& body, bool is_early) {
  DeviceBlock block(256);
  std::memset(block.begin(), 0, 256);
  const std::string begin =
      ".reg .b64 %p, %g; .reg .b32 %v; ld.param.u64 %p, [p0]; mov.u32 %v, 1;\n"
      "st.shared.u32 [words], %v; ld.shared.u32 %v, [words];\n"
      "mov.u64 %g, words; cvta.shared.u64 %g, %g; st.u32 [%g], %v;\n";
  return std::string(RunText(EntryText(1, begin + body, ".shared .align 4 .b8 words[4];"),
                             {.block = 1, .is_early = is_early},
                             {reinterpret_cast<uint64_t>(block.begin())})
                         .message());
}

TEST_SUITE("unit") {
  TEST_CASE("PTX machine: an early launch waits before it touches global memory") {
    for (const std::string access :
         {"ld.global.u32 %v, [%p];", "st.global.u32 [%p], %v;", "ld.u32 %v, [%p];",
          "atom.relaxed.gpu.global.add.u32 %v, [%p], 1;"}) {
      CAPTURE(access);
      CHECK(ErrorOf(access, false).empty());
      CHECK(ErrorOf("griddepcontrol.wait;\n" + access, true).empty());
      for (const char* const before : {"", "griddepcontrol.launch_dependents;\n"}) {
        const std::string error = ErrorOf(before + access, true);
        CAPTURE(error);
        CHECK(error.find("griddepcontrol.wait comes first") != std::string::npos);
      }
    }
    CHECK(ErrorOf("", true).empty());
  }
}

}  // namespace
}  // namespace specd::ptx
