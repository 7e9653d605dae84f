// The short lists that 32 lanes make (warp_lists.h) against loops.
#include "kernels/warps/warp_lists.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "tests/kernels/warps/run_warp.h"

namespace specd {
namespace {

constexpr int32_t kCounts[] = {1, 31, 32, 33, 100, 127, 128, 129, 700};

TEST_SUITE("unit") {
  TEST_CASE("lanes list the numbers that a loop lists, unless there are more than fit") {
    std::mt19937_64 random(81);
    for (const int32_t count : kCounts) {
      std::vector<bool> is_in(count);
      std::vector<int32_t> expected;
      for (int32_t i = 0; i < count; ++i) {
        is_in[i] = random() % 3 == 0;
        if (is_in[i]) expected.push_back(i);
      }
      const auto num = static_cast<int32_t>(expected.size());
      std::vector<int32_t> listed(num, -1);
      CAPTURE(count);
      RunWarp([&](EmulatedTeam& team) {
        const auto in = [&](int32_t i) -> bool { return is_in[i]; };
        CHECK(team.CountWhere(count, in) == num);
        if (num > 0) CHECK(team.ListWhere(count, in, num - 1, listed.data()) == -1);
        CHECK(team.ListWhere(count, in, num, listed.data()) == num);
      });
      CHECK(listed == expected);
    }
  }

  TEST_CASE("lanes order values as a stable sort does") {
    std::mt19937_64 random(82);
    for (const int32_t count : kCounts) {
      // Many are equal, and zeros of both signs are.
      std::vector<float> values(count);
      for (float& x : values) x = (random() % 2 == 0 ? 1.0f : -1.0f) * (random() % 9);
      std::vector<int32_t> expected(count);
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(),
                       [&](int32_t a, int32_t b) { return values[a] > values[b]; });
      std::vector<int32_t> order(count, -1);
      CAPTURE(count);
      RunWarp([&](EmulatedTeam& team) { team.Order(values.data(), count, order.data()); });
      CHECK(order == expected);
    }
  }

  TEST_CASE("a list keeps the ids whose values reach a floor, and not a NaN") {
    std::mt19937_64 random(83);
    for (const int32_t count : kCounts) {
      const auto value_of = [](TokenId id) {
        return id % 7 == 0 ? FloatOf(0x7FC00000u) : static_cast<float>(id % 5);
      };
      std::vector<TokenId> ids(count);
      std::vector<float> values(count);
      TokenId next = 0;
      for (TokenId& id : ids) id = next += 1 + static_cast<TokenId>(random() % 9);
      std::vector<TokenId> expected;
      for (const TokenId id : ids) {
        if (value_of(id) >= 3.0f) expected.push_back(id);
      }
      CAPTURE(count);
      RunWarp([&](EmulatedTeam& team) {
        CHECK(team.KeepFrom(3.0f, count, value_of, {values.data(), ids.data()}) ==
              static_cast<int32_t>(expected.size()));
      });
      for (size_t i = 0; i < expected.size(); ++i) {
        CHECK(ids[i] == expected[i]);
        CHECK(values[i] == value_of(expected[i]));
      }
    }
  }
}

}  // namespace
}  // namespace specd
