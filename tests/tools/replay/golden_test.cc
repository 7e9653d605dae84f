// The golden traces of tests/data/traces on every backend that runs here: the same bits.
#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/replay/verify_command.h"

namespace specd::replay {
namespace {

std::vector<std::string> GoldenTraces() {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(SPECD_SOURCE_DIR "/tests/data/traces")) {
    if (entry.path().extension() == ".mcap") paths.push_back(entry.path().string());
  }
  return paths;
}

void CheckAll(ReplayBackend* backend) {
  const std::vector<std::string> paths = GoldenTraces();
  CHECK(paths.size() >= 3);
  for (const std::string& path : paths) {
    CAPTURE(path);
    TraceReader reader({path});
    const auto report = VerifyTrace(&reader, backend, CommandOptions());
    REQUIRE_MESSAGE(report.ok(), report.status().ToString());
    for (const VerifyReport::Difference& difference : report->differences) {
      FAIL_CHECK(difference.round << ": " << difference.text);
    }
    CHECK(report->num_different == 0);
    CHECK(report->num_equal_by_rows + report->num_equal_by_scalars > 0);
    CHECK(reader.warnings().empty());
  }
}

TEST_SUITE("replay") {
  TEST_CASE("golden traces: every backend that is here") {
    const std::vector<std::string> names = BackendsHere();
    REQUIRE(names.size() >= 3);
    for (const std::string& name : names) {
      CAPTURE(name);
      auto backend = MakeNamedBackend(name);
      REQUIRE(backend.ok());
      ReplayBackend replay(*std::move(backend), 2);
      CheckAll(&replay);
    }
  }
}

}  // namespace
}  // namespace specd::replay
