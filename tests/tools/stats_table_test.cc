// Two looks at the counters of a daemon, whose file any process of its user may write over.
#include "tools/specctl/stats_table.h"

#include <doctest/doctest.h>

#include <vector>

namespace specd::ctl {
namespace {

CounterSnapshot Look() {
  CounterSnapshot look = {.pid = 7, .epoch = 1, .start_unix_ns = 1, .is_alive = true};
  look.series.push_back({.name = "specd:rounds", .labels = "a=\"0\"", .values = {1}});
  look.series.push_back({.name = "specd:round_time",
                         .kind = CounterKind::kTimes,
                         .values = std::vector<uint64_t>(kTimesBounds + 2)});
  return look;
}

TEST_SUITE("fault") {
  TEST_CASE("looks whose series differ are not compared number by number") {
    CHECK(IsSameDaemon(Look(), Look()));
    std::vector<CounterSnapshot> others(7, Look());
    others[0].epoch = 2;
    others[1].start_unix_ns = 2;
    others[2].series.pop_back();
    others[3].series[0].name = "specd:tokens";
    others[4].series[0].labels = "a=\"1\"";
    others[5].series[0].kind = CounterKind::kGauge;
    // Bug: the values of the longer series were read behind the end of the shorter.
    others[6].series[1].values.resize(1);
    for (const CounterSnapshot& other : others) {
      CHECK_FALSE(IsSameDaemon(Look(), other));
      CHECK_FALSE(IsSameDaemon(other, Look()));
    }
  }
}

}  // namespace
}  // namespace specd::ctl
