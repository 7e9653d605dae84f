// The reserve of descriptors, and the limit that leaves room beside it.
#include "ipc/base/descriptors.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include "absl/cleanup/cleanup.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  // Descriptor number `count` has the number count - 1, because they begin at 0.
  TEST_CASE("descriptors: the limit with room for some is the least at which none is reserved") {
    rlimit before = {};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const absl::Cleanup restore = [before] { setrlimit(RLIMIT_NOFILE, &before); };
    for (const int count : {30, 61, 62, 63, 64, 700, 899, 900, 901, 1500}) {
      CAPTURE(count);
      rlimit limit = before;
      limit.rlim_cur = LimitWithRoomFor(static_cast<uint64_t>(count));
      if (limit.rlim_cur > before.rlim_max) continue;
      REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
      CHECK_FALSE(IsReservedFrom(Peer::kEngine, count - 1));
      --limit.rlim_cur;
      REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
      CHECK(IsReservedFrom(Peer::kEngine, count - 1));
    }
  }
}

}  // namespace
}  // namespace specd
