// Health over the life of a daemon, look by look.
#include "tools/http/health.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>

namespace specd::http {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct Daemon {
  CounterSnapshot Snapshot() const {
    CounterSnapshot now = {.pid = 7, .epoch = epoch, .start_unix_ns = 1, .is_alive = is_alive};
    const auto add = [&now](const std::string& name, const std::string& labels, uint64_t value) {
      now.series.push_back({.name = name, .labels = labels, .values = {value}});
    };
    add("specd:state", "", state);
    if (canary_failing.has_value()) add("specd:canary_failing", "", *canary_failing);
    add("specd:thread_beats", "thread=\"verify\"", verify);
    add("specd:thread_beats", "thread=\"publisher\"", publisher);
    add("specd:thread_beats", "thread=\"text\"", 0);  // the daemon has no such thread
    return now;
  }
  uint64_t epoch = 1;
  bool is_alive = true;
  uint64_t state = 1;
  std::optional<uint64_t> canary_failing;
  uint64_t verify = 1;
  uint64_t publisher = 1;
};

TEST_SUITE("unit") {
  TEST_CASE("a daemon is ready while it serves, and live until it ends") {
    Health health;
    CHECK_FALSE(health.verdict().is_live);
    health.Look(absl::NotFoundError("no file"), 0);
    CHECK_FALSE(health.verdict().is_live);
    CHECK(health.verdict().why == "no file");
    Daemon daemon;
    for (const uint64_t state : {0U, 1U, 2U, 99U}) {
      CAPTURE(state);
      daemon.state = state;
      health.Look(daemon.Snapshot(), 0);
      CHECK(health.verdict().is_live);
      CHECK(health.verdict().is_ready == (state == 1));
    }
    daemon.state = 1;
    daemon.is_alive = false;
    health.Look(daemon.Snapshot(), 0);
    CHECK_FALSE(health.verdict().is_live);
    CHECK_FALSE(health.verdict().is_ready);
  }

  TEST_CASE("one thread that stands still for 2 s takes readiness, and for 30 s life") {
    Health health;
    Daemon daemon;
    health.Look(daemon.Snapshot(), 10 * kSecond);
    CHECK(health.verdict().is_ready);  // nothing is known of the time before
    for (int64_t half = 1; half < 4; ++half) {
      ++daemon.verify;
      health.Look(daemon.Snapshot(), 10 * kSecond + half * kSecond / 2);
      CHECK(health.verdict().is_ready);
    }
    ++daemon.verify;
    health.Look(daemon.Snapshot(), 12 * kSecond);  // the publisher has not moved since 10 s
    CHECK_FALSE(health.verdict().is_ready);
    CHECK(health.verdict().is_live);
    CHECK(health.verdict().why == "thread=\"publisher\" stands still for 2.0 s");
    ++daemon.verify;
    health.Look(daemon.Snapshot(), 40 * kSecond - 1);
    CHECK(health.verdict().is_live);
    ++daemon.verify;
    health.Look(daemon.Snapshot(), 40 * kSecond);
    CHECK_FALSE(health.verdict().is_live);
    ++daemon.publisher;
    ++daemon.verify;
    health.Look(daemon.Snapshot(), 41 * kSecond);
    CHECK(health.verdict().is_ready);
  }

  TEST_CASE("a daemon whose device answers the canary wrong lives and is not ready") {
    Health health;
    Daemon daemon;
    health.Look(daemon.Snapshot(), 0);
    CHECK(health.verdict().is_ready);  // a daemon without a canary
    for (const uint64_t failing : {0U, 3U, 0U}) {
      CAPTURE(failing);
      daemon.canary_failing = failing;
      health.Look(daemon.Snapshot(), 0);
      CHECK(health.verdict().is_live);
      CHECK(health.verdict().is_ready == (failing == 0));
    }
    daemon.canary_failing = 3;
    health.Look(daemon.Snapshot(), 0);
    CHECK(health.verdict().why.find("the canary wrong, 3 in a row") != std::string::npos);
    daemon.state = 2;
    health.Look(daemon.Snapshot(), 0);
    CHECK(health.verdict().why == "the daemon drains");
  }

  TEST_CASE("another daemon begins anew, even with the same counts") {
    Health health;
    Daemon daemon;
    health.Look(daemon.Snapshot(), 0);
    health.Look(daemon.Snapshot(), 5 * kSecond);
    CHECK_FALSE(health.verdict().is_ready);
    daemon.epoch = 2;
    health.Look(daemon.Snapshot(), 5 * kSecond);
    CHECK(health.verdict().is_ready);
  }
}

}  // namespace
}  // namespace specd::http
