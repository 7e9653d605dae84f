#include "daemon/base/awake_time.h"

#include <doctest/doctest.h>

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("awake: usual steps are the clock's, and a longer one counts as the longest") {
    AwakeTime awake(100);
    CHECK(awake.now_ns() == 0);
    CHECK(awake.Step(5'000'000) == 0);
    CHECK(awake.Step(5'000'040) == 40);
    CHECK(awake.Step(5'000'140) == 140);
    CHECK(awake.Step(9'000'000'000) == 240);
    CHECK(awake.Step(9'000'000'001) == 241);
    CHECK(awake.Step(9'000'000'001) == 241);
    CHECK(awake.now_ns() == 241);
  }
}

}  // namespace
}  // namespace specd
