// JudgeSharing tells from two processes' descriptions whether they share their GPU or take turns on
// it.
#include "daemon/base/mps.h"

#include <doctest/doctest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/base/logging.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/server/server_fixture.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

std::vector<GpuDevice> Devices(std::vector<std::optional<bool>> has_mps) {
  std::vector<GpuDevice> devices;
  for (const std::optional<bool>& has : has_mps) devices.push_back({.has_mps = has});
  return devices;
}

struct Folders : TemporaryFolder {
  Folders() {
    std::filesystem::create_directory(Of("a"));
    std::filesystem::create_directory(Of("b"));
    std::filesystem::create_directory_symlink(Of("a"), Of("again"));
  }
};

// The lines that a daemon with this device logs while one engine attaches.
std::string LinesOfAttach(const std::string& device_uuid, const std::string& mps) {
  std::ostringstream lines;
  test::ServerFixture f(device_uuid, mps);
  spdlog::logger& log = Log("attach");
  log.sinks().push_back(std::make_shared<spdlog::sinks::ostream_sink_mt>(lines));
  log.set_level(spdlog::level::info);
  log.set_pattern("%l %v");
  const test::EnginePtr engine = test::OpenEngine(f.uri, test::ServerOptions());
  // The answer to the engine comes after the lines, and no more are written until the engine goes.
  log.sinks().pop_back();
  return lines.str();
}

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_SUITE("unit") {
  TEST_CASE("mps: an engine that attaches is one line of what is known of the server") {
    const std::string shared = LinesOfAttach("GPU-0", "1:2");
    CHECK(CountOf(shared, "\n") == 2);
    CHECK(CountOf(shared, "info session 1: it shares the GPU with this daemon through MPS") == 1);
    const std::string unknown = LinesOfAttach("GPU-0", "");
    CHECK(CountOf(unknown, "\n") == 2);
    CHECK(CountOf(unknown, "warning session 1: whether it shares the GPU") == 1);
    CHECK(CountOf(unknown, "cannot be known") == 1);
    const std::string alone = LinesOfAttach("GPU-0", "none");
    CHECK(CountOf(alone, "\n") == 2);
    CHECK(CountOf(alone, "warning session 1: it takes turns on the GPU") == 1);
    CHECK(CountOf(alone, "nvidia-cuda-mps-control") == 1);
    // Rounds on the CPU have no use for MPS.
    CHECK(CountOf(LinesOfAttach("", ""), "\n") == 1);
  }

  TEST_CASE("mps: one server is one pipe, whatever it is called") {
    const Folders folders;
    const auto describe = [&](const char* name) {
      return DescribeMps(Devices({true}), folders.Of(name));
    };
    CHECK_FALSE(describe("a").empty());
    CHECK(describe("a") == describe("again"));
    CHECK(describe("a") != describe("b"));
    CHECK(describe("absent").empty());
    CHECK(DescribeMps(Devices({}), folders.Of("a")).empty());
    CHECK(DescribeMps(Devices({std::nullopt}), folders.Of("a")).empty());
    CHECK(DescribeMps(Devices({true, std::nullopt}), folders.Of("a")).empty());
    CHECK(DescribeMps(Devices({true, false}), folders.Of("a")) == "none");
    // An existing folder says nothing without a server.
    CHECK(DescribeMps(Devices({false}), folders.Of("a")) == "none");
  }

  TEST_CASE("mps: shared only where both have the same server; time-sliced is said plainly") {
    CHECK(JudgeSharing("1:2", "1:2").mode == SPECD_SHARING_MPS);
    for (const auto& [engine, daemon] :
         {std::pair{"1:2", "1:3"}, {"none", "none"}, {"none", "1:2"}, {"1:2", "none"}}) {
      const Sharing sharing = JudgeSharing(engine, daemon);
      CHECK(sharing.mode == SPECD_SHARING_TIME_SLICED);
      CHECK(std::string(sharing.text).find("time-sliced") != std::string::npos);
      CHECK(std::string(sharing.text).find("nvidia-cuda-mps-control") != std::string::npos);
    }
    for (const auto& [engine, daemon] : {std::pair{"", ""}, {"", "1:2"}, {"none", ""}}) {
      CHECK(JudgeSharing(engine, daemon).mode == SPECD_SHARING_UNKNOWN);
    }
  }

  TEST_CASE("mps: the pipe is where the environment says, or NVIDIA's default") {
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    CHECK(MpsPipeDirectory() == P_tmpdir "/nvidia-mps");
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere", 1);
    CHECK(MpsPipeDirectory() == "/elsewhere");
    setenv("CUDA_MPS_PIPE_DIRECTORY", "", 1);
    CHECK(MpsPipeDirectory() == P_tmpdir "/nvidia-mps");
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  }
}

}  // namespace
}  // namespace specd
