// The kernels' PTX as nvcc wrote it: the machine knows all of it. tools/cmake/keep_ptx.py has
// looked for operations that ptxas might fuse.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/gpu/ptx/machine/module_loader.h"

namespace specd::ptx {
namespace {

TEST_SUITE("ptx") {
  TEST_CASE("kernels' PTX: the machine knows all of it") {
    for (const std::filesystem::path folder : {SPECD_PTX_FOLDERS}) {
      int num_files = 0;
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".ptx") continue;
        const std::string name = entry.path().string();
        CAPTURE(name);
        std::ifstream file(entry.path());
        std::stringstream text;
        text << file.rdbuf();
        const auto module = LoadModule(name, text.str());
        REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
        CHECK(std::ranges::count(text.str(), '\n') > 100);
        ++num_files;
      }
      CHECK(num_files >= 7);
    }
  }
}

}  // namespace
}  // namespace specd::ptx
