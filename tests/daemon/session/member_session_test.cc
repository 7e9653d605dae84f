// A rank's place in a session when memory runs out.
#include "daemon/session/member_session.h"

#include <doctest/doctest.h>

#include <new>

#include "tests/support/session_fixture.h"
#include "tests/support/watched_memory.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("ranks: a join that finds no memory takes no place") {
    SessionFixture f;
    int num_failed = 0;
    for (bool has_joined = false; !has_joined; ++num_failed) {
      REQUIRE(num_failed < 100);
      allocations_left = num_failed;
      try {
        has_joined = MemberSession::Join(f.session, {.rank = 3}).ok();
      } catch (const std::bad_alloc&) {
      }
      allocations_left = -1;
      // After any failure the place is free.
      const auto next = MemberSession::Join(f.session, {.rank = 3});
      CAPTURE(num_failed);
      REQUIRE(next.ok());
      // While a rank has the place, it is not free.
      CHECK_FALSE(MemberSession::Join(f.session, {.rank = 3}).ok());
    }
    CHECK(num_failed > 1);  // at least one allocation failed
  }
}

}  // namespace
}  // namespace specd
