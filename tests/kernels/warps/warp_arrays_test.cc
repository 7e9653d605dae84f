// The looks of 32 lanes at short arrays (warp_arrays.h) against loops.
#include "kernels/warps/warp_arrays.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/kernels/warps/run_warp.h"

namespace specd {
namespace {

// As many numbers as lanes, as two turns of lanes, as a row of the largest vocabulary has tiles.
constexpr int32_t kCounts[] = {1, 5, 31, 32, 33, 63, 64, 65, 100, 2048};

TEST_SUITE("unit") {
  TEST_CASE("lanes find what a loop over an array finds") {
    std::mt19937_64 random(71);
    for (const int32_t count : kCounts) {
      CAPTURE(count);
      std::vector<float> values(count);
      for (float& x : values) x = static_cast<float>(random() % 100000) * 1e-3f;
      std::vector<int32_t> sorted(count);
      for (int32_t& x : sorted) x = static_cast<int32_t>(random() % (2 * count));
      std::sort(sorted.begin(), sorted.end());
      double sum = 0;
      for (const float x : values) sum += static_cast<double>(x);
      const float largest = *std::max_element(values.begin(), values.end());
      RunWarp([&](EmulatedTeam& team) {
        CHECK(team.LargestOf(values.data(), count) == largest);
        CHECK(team.SumTerms(count, [&](int32_t i) { return values[i]; }) == sum);
        if (count > EmulatedTeam::kHeldMost) return;
        const auto held = team.Hold(count, [&](int32_t i) { return values[i]; });
        CHECK(team.LargestHeld(held) == largest);
        CHECK(team.SumHeld(count, held) == sum);
        CHECK(std::fabs(team.RoughSumHeld(held) - sum) <= kRoughly * sum);
      });
      for (const int32_t place : {0, count / 2, count - 1, count}) {
        CAPTURE(place);
        const int32_t bound = place < count ? sorted[place] : 2 * count;
        const auto below = std::lower_bound(sorted.begin(), sorted.end(), bound) - sorted.begin();
        RunWarp([&](EmulatedTeam& team) {
          CHECK(team.FirstWhere(count, [&](int32_t i) { return i >= place; }) == place);
          CHECK(team.NumBelow(count, [&](int32_t i) { return sorted[i] < bound; }) == below);
        });
      }
    }
  }

  TEST_CASE("lanes draw the term that a loop over prefixes draws") {
    std::mt19937_64 random(72);
    for (const int32_t count : kCounts) {
      CAPTURE(count);
      std::vector<uint64_t> terms(count);
      uint64_t total = 0;
      for (uint64_t& term : terms) total += term = random() % 3 == 0 ? 0 : random() >> 23;
      const auto term_of = [&](int32_t i) { return terms[i]; };
      for (const uint64_t threshold : {uint64_t{0}, total / 3, total - 1, total}) {
        PrefixPlace expected;
        uint64_t before = 0;
        for (int32_t i = 0; i < count && expected.element < 0; before += terms[i++]) {
          if (before + terms[i] > threshold) expected = {i, before, terms[i]};
        }
        RunWarp([&](EmulatedTeam& team) {
          CHECK(team.SumOfTerms(count, term_of) == total);
          const PrefixPlace found = team.FindTerm(count, term_of, threshold);
          CHECK(found.element == expected.element);
          CHECK(found.before == expected.before);
          CHECK(found.weight == expected.weight);
        });
      }
    }
  }

  TEST_CASE("a walk in turn sees the value of each number, and ends where it is told to") {
    struct Look {
      int32_t number = -1;
      uint32_t square = 0;
    };
    for (const int32_t count : kCounts) {
      for (const int32_t last : {0, 30, 31, 32, 33, count - 1}) {
        RunWarp([&](EmulatedTeam& team) {
          int32_t next = 0;
          const auto look_at = [](int32_t i) { return Look{i, static_cast<uint32_t>(i * i)}; };
          const auto check = [](int32_t i, const Look& look) {
            CHECK(look.number == i);
            CHECK(look.square == static_cast<uint32_t>(i * i));
          };
          const auto is_alone = [&](int32_t i) { return i % 7 == 3 || i >= last; };
          team.InTurn(
              count, look_at, [&](const Look& look) { return !is_alone(look.number); },
              [&](int32_t mine, const Look& look, uint32_t passed) {
                for (int32_t bit = 0; bit < 32; ++bit) {
                  const int32_t i = mine / 32 * 32 + bit;
                  if ((passed >> bit & 1u) == 0) continue;
                  CHECK(i == next);
                  CHECK(!is_alone(i));
                  if (i == mine) check(i, look);
                  ++next;
                }
              },
              [&](int32_t i, const Look& look) {
                CHECK(i == next);
                CHECK(is_alone(i));
                check(i, look);
                ++next;
                return i < last;
              });
          CHECK(next == std::min(last + 1, count));
        });
      }
    }
  }
}

}  // namespace
}  // namespace specd
