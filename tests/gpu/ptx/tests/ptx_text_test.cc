// The kernels' PTX as nvcc wrote it: the machine knows all of it, and ptxas may fuse none of it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "tests/gpu/ptx/machine/module_loader.h"

namespace specd::ptx {
namespace {

// Without .rn, ptxas may make one rounding of a product and a sum. An instruction that rounds in
// its own way has that in its name.
bool MayBeFused(const std::string& line) {
  static const std::regex pattern(
      R"(^\s*(@!?%p\d+\s+)?(add|sub|mul|mad)(\.ftz)?(\.sat)?\.f(16|32|64)(x2)?\s)");
  return std::regex_search(line, pattern);
}

TEST_SUITE("ptx") {
  TEST_CASE("kernels' PTX: the check of fusing sees each float operation without .rn") {
    CHECK(MayBeFused("\tadd.f32 \t%f1, %f2, %f3;"));
    CHECK(MayBeFused("\t@%p1 mul.ftz.f32 \t%f1, %f2, %f3;"));
    CHECK(MayBeFused("\tsub.f64 \t%fd1, %fd2, %fd3;"));
    CHECK_FALSE(MayBeFused("\tadd.rn.f32 \t%f1, %f2, %f3;"));
    CHECK_FALSE(MayBeFused("\tfma.rn.f32 \t%f1, %f2, %f3, %f4;"));
    CHECK_FALSE(MayBeFused("\tadd.s32 \t%r1, %r2, %r3;"));
  }

  TEST_CASE("kernels' PTX: the machine knows all of it, and ptxas may fuse no float operation") {
    int num_files = 0;
    for (const char* const arch : {"sm_80", "sm_90"}) {
      for (const auto& entry :
           std::filesystem::directory_iterator(std::string(SPECD_PTX_FOLDERS) + "/" + arch)) {
        if (entry.path().extension() != ".ptx") continue;
        const std::string name = fmt::format("{}/{}", arch, entry.path().filename().string());
        CAPTURE(name);
        std::ifstream file(entry.path());
        std::stringstream text;
        text << file.rdbuf();
        const auto module = LoadModule(name, text.str());
        REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
        std::string line;
        int number = 0;
        while (std::getline(text, line)) {
          ++number;
          if (MayBeFused(line)) FAIL_CHECK(fmt::format("{}:{}: {}", name, number, line));
        }
        CHECK(number > 100);
        ++num_files;
      }
    }
    CHECK(num_files >= 14);
  }
}

}  // namespace
}  // namespace specd::ptx
