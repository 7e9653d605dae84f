// A session takes from its own budget and from that of all sessions, all or nothing.
#include "daemon/base/memory_budget.h"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("a share is taken from both budgets and given back to both") {
    MemoryBudget all(100, "all_mib");
    MemoryBudget one(60, "one_mib", &all);
    {
      const absl::StatusOr<MemoryShare> share = one.Take("it", 60);
      REQUIRE(share.ok());
      CHECK(share->size_bytes() == 60);
      CHECK(one.taken_bytes() == 60);
      CHECK(all.taken_bytes() == 60);
    }
    CHECK(one.taken_bytes() == 0);
    CHECK(all.taken_bytes() == 0);
  }

  TEST_CASE("a refusal names what was asked, what is left and the flag that bounds it") {
    MemoryBudget all(100, "all_mib");
    MemoryBudget one(60, "one_mib", &all);
    MemoryBudget other(60, "one_mib", &all);
    const absl::StatusOr<MemoryShare> first = one.Take("it", 50);
    REQUIRE(first.ok());

    const absl::Status own = one.Take("the prompt", 11).status();
    CHECK(ErrorCodeOf(own) == SPECD_ERROR_EXHAUSTED);
    CHECK(ErrorFieldOf(own) == "one_mib");
    for (const char* part : {"the prompt would take 11 bytes", "10 of the 60", "--one_mib"}) {
      CHECK(std::string(own.message()).find(part) != std::string::npos);
    }
    // The other session has 60 bytes of its own, and all sessions have 50 left.
    CHECK(ErrorFieldOf(other.Take("it", 51).status()) == "all_mib");
    CHECK(other.taken_bytes() == 0);
    CHECK(all.taken_bytes() == 50);
    CHECK(other.Take("it", 50).ok());
  }

  TEST_CASE("the largest number does not wrap around") {
    MemoryBudget all(100, "all_mib");
    const absl::StatusOr<MemoryShare> some = all.Take("it", 100);
    CHECK_FALSE(all.Take("it", UINT64_MAX).ok());
    CHECK_FALSE(all.Take("it", 1).ok());
    CHECK(all.Take("it", 0).ok());
  }

  TEST_CASE("a share moves with its bytes") {
    MemoryBudget all(100, "all_mib");
    std::vector<MemoryShare> shares(2);
    shares[0] = *all.Take("it", 30);
    shares[1] = std::move(shares[0]);
    CHECK(all.taken_bytes() == 30);
    shares[0] = *all.Take("it", 20);
    CHECK(all.taken_bytes() == 50);
    shares.clear();
    CHECK(all.taken_bytes() == 0);
  }

  TEST_CASE("a budget that is not there bounds nothing") {
    CHECK(TakeMemory(nullptr, "it", UINT64_MAX).ok());
  }

  TEST_CASE("two threads never take more than there is") {
    MemoryBudget all(1000, "all_mib");
    const auto take = [&all] {
      for (int i = 0; i < 20000; ++i) {
        const absl::StatusOr<MemoryShare> share = all.Take("it", 600);
        CHECK(all.taken_bytes() <= 1000);
      }
    };
    std::thread other(take);
    take();
    other.join();
    CHECK(all.taken_bytes() == 0);
  }
}

}  // namespace
}  // namespace specd
