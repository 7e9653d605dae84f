// The memory of a daemon is divided among its users.
//
// Bug that this would catch: the engines of one user could take all the memory, and no engine of
// another user could attach or open a sequence.
#include "daemon/base/user_budgets.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("budgets: one user's engines leave a quarter of the memory to other users") {
    MemoryBudget all(1600, "all_mib");
    UserBudgets budgets(&all, std::vector<uint32_t>{0, 1001, 1002});
    // Two engines, each with the half that is usual.
    MemoryBudget first(800, "one_mib", budgets.Of(1001));
    MemoryBudget second(800, "one_mib", budgets.Of(1001));
    const absl::StatusOr<MemoryShare> half = first.Take("it", 800);
    const absl::StatusOr<MemoryShare> quarter = second.Take("it", 400);
    REQUIRE(half.ok());
    REQUIRE(quarter.ok());
    const absl::Status refused = second.Take("the prompt", 1).status();
    CHECK(ErrorCodeOf(refused) == SPECD_ERROR_EXHAUSTED);
    CHECK(ErrorFieldOf(refused) == "all_mib");
    CHECK(std::string(refused.message()).find("0 of the 1200 that --all_mib") != std::string::npos);
    CHECK(second.taken_bytes() == 400);
    CHECK(all.taken_bytes() == 1200);

    MemoryBudget other(800, "one_mib", budgets.Of(1002));
    const absl::StatusOr<MemoryShare> rest = other.Take("it", 400);
    REQUIRE(rest.ok());
    CHECK_FALSE(other.Take("it", 1).ok());
    CHECK(all.taken_bytes() == 1600);
  }

  TEST_CASE("budgets: a daemon that serves one user divides nothing") {
    MemoryBudget all(1600, "all_mib");
    UserBudgets budgets(&all, std::vector<uint32_t>{7, 7});
    CHECK(budgets.Of(7) == &all);
    CHECK(budgets.Of(7)->Take("it", 1600).ok());
  }
}

}  // namespace
}  // namespace specd
