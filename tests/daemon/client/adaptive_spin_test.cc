#include "daemon/client/adaptive_spin.h"

#include <doctest/doctest.h>

namespace specd {
namespace {

constexpr int64_t kMaxNs = 2'000'000;

void Wait(AdaptiveSpin* spin, int64_t ns, int times) {
  for (int i = 0; i < times; ++i) spin->Took(ns);
}

TEST_SUITE("unit") {
  TEST_CASE("a wait looks until the answer comes, however long rounds take") {
    AdaptiveSpin spin(kMaxNs);
    CHECK(spin.NextNs() == kMaxNs);
    for (const int64_t round_ns : {2'000, 60'000, 300'000, 900'000, 1'900'000, 5'000}) {
      CAPTURE(round_ns);
      Wait(&spin, round_ns, 30);
      CHECK(spin.NextNs() > round_ns);
      CHECK(spin.NextNs() <= kMaxNs);
    }
    CHECK(spin.NextNs() < 100'000);  // short rounds hold no CPU for long
  }

  TEST_CASE("a wait that is longer than the bound is slept through") {
    AdaptiveSpin spin(kMaxNs);
    Wait(&spin, 30'000'000, 30);
    CHECK(spin.NextNs() == 0);
    // Rounds become short again.
    Wait(&spin, 50'000, 30);
    CHECK(spin.NextNs() > 50'000);
  }

  TEST_CASE("one long wait among short ones is soon forgotten") {
    AdaptiveSpin spin(kMaxNs);
    Wait(&spin, 50'000, 30);
    spin.Took(INT64_MAX);
    Wait(&spin, 50'000, 20);
    CHECK(spin.NextNs() > 50'000);
    spin.Took(-1);  // a clock that was set back
    CHECK(spin.NextNs() > 0);
  }

  TEST_CASE("a bound of 0 sleeps at once") {
    AdaptiveSpin spin(0);
    CHECK(spin.NextNs() == 0);
    Wait(&spin, 5, 10);
    CHECK(spin.NextNs() == 0);
  }
}

}  // namespace
}  // namespace specd
