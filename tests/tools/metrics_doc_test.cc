// docs/METRICS.md is what specctl prints, and says each metric once.
#include "tools/specctl/metrics_doc.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "daemon/metrics/metric_table.h"

namespace specd {
namespace {

TEST_SUITE("style") {
  TEST_CASE("docs/METRICS.md is what specctl describe prints") {
    std::ifstream file(std::string(SPECD_SOURCE_DIR) + "/docs/METRICS.md");
    REQUIRE(file.good());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    CHECK_MESSAGE(text == ctl::MetricsDoc(), "run specctl describe > docs/METRICS.md");
  }
}

TEST_SUITE("unit") {
  TEST_CASE("each metric has one row, and the first row of a name its meaning") {
    const std::string text = ctl::MetricsDoc();
    for (const MetricRow& row : MetricTable()) {
      CAPTURE(row.name);
      const std::string cell = "\n| `" + std::string(row.name) + "` ";
      const size_t at = text.find(cell);
      REQUIRE(at != std::string::npos);
      CHECK(text.find(cell, at + 1) == std::string::npos);
      CHECK(text.find("| " + std::string(row.meaning)) != std::string::npos);
      CHECK(row.name.starts_with("specd:"));
      CHECK(row.name.find("created") == std::string::npos);
      CHECK(!row.name.ends_with("_total"));
    }
  }
}

}  // namespace
}  // namespace specd
