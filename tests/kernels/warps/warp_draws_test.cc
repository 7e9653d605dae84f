// The draws of 32 lanes (warp_draws.h, warp_arrays.h) against loops over integer weights.
#include "kernels/warps/warp_draws.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/kernels/warps/run_warp.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

// docs/ALGORITHMS.md, "Drawing": each weight keeps 40 bits below the largest one. ldexp is exact.
std::vector<uint64_t> IntegersOf(const std::vector<float>& weights) {
  const float largest = *std::max_element(weights.begin(), weights.end());
  // A subnormal number has the exponent of the smallest normal one.
  const int exponent = std::max(std::ilogb(largest), -126);
  std::vector<uint64_t> integers;
  for (const float weight : weights) {
    integers.push_back(static_cast<uint64_t>(std::ldexp(double{weight}, 40 - exponent)));
  }
  return integers;
}

PrefixPlace PlaceOf(const std::vector<uint64_t>& integers, uint64_t threshold) {
  uint64_t before = 0;
  for (size_t i = 0; i < integers.size(); before += integers[i++]) {
    if (before + integers[i] > threshold) return {static_cast<int32_t>(i), before, integers[i]};
  }
  return {};
}

// draw(team, threshold_of) draws where a loop over the integers does, for some thresholds.
template <typename DrawFunction>
void CheckDraws(const std::vector<uint64_t>& integers, const DrawFunction& draw) {
  uint64_t total = 0;
  for (const uint64_t integer : integers) total += integer;
  for (const uint64_t threshold : {uint64_t{0}, total / 3, total - 1, total}) {
    const PrefixPlace expected = PlaceOf(integers, threshold);
    RunWarp([&](EmulatedTeam& team) {
      uint64_t sum = 0;
      const PrefixPlace found = draw(team, [&](uint64_t all) {
        sum = all;
        return threshold;
      });
      CHECK(sum == total);
      CHECK(found.element == expected.element);
      CHECK(found.before == expected.before);
      CHECK(found.weight == expected.weight);
    });
  }
}

// Weights from the largest, which has that exponent, down to a few that are too small to count.
// One of three is 0.
std::vector<float> WeightsBelow(int exponent, size_t count, std::mt19937_64* random) {
  std::vector<float> weights(count);
  for (float& weight : weights) {
    const double fraction = 1 + static_cast<double>((*random)() % (1 << 23)) / (1 << 23);
    const int down = static_cast<int>((*random)() % 44);
    weight =
        (*random)() % 3 == 0 ? 0.0f : static_cast<float>(std::ldexp(fraction, exponent - down));
  }
  weights[count / 2] = std::ldexp(1.5f, exponent);
  return weights;
}

// Exponents of subnormal numbers, about those where a scale changes its factors, of masses, and the
// largest.
constexpr int kExponents[] = {-149, -126, -125, -88, -81, -80, -79, -40, -1, 0, 1, 11, 100, 127};

TEST_SUITE("unit") {
  TEST_CASE("a warp draws from a tile what a loop over integer weights draws") {
    std::mt19937_64 random(73);
    for (const int exponent : kExponents) {
      for (const int32_t count : {1, 255, 256, 257, 2047, 2048}) {
        CAPTURE(exponent);
        CAPTURE(count);
        const std::vector<float> weights = WeightsBelow(exponent, count, &random);
        const RowView row{weights.data(), DType::kFloat32, count, {}};
        // Elements behind the row's end are -inf.
        const auto weight_of = [](float x) { return x < 0 ? 0.0f : x; };
        CheckDraws(IntegersOf(weights), [&](EmulatedTeam& team, const auto& threshold_of) {
          EmulatedTeam::Tile tile;
          team.Load(row, 0, kAllSteps, Identity{}, &tile);
          return team.Draw(weight_of, threshold_of, tile);
        });
      }
    }
  }

  // The row of a draw may change while the round runs.
  TEST_CASE("a draw over weights that may be anything stays in its bounds") {
    for (const float odd : {-1.0f, -0x1p32f, INFINITY, -INFINITY, NAN, -NAN, 0x1p100f}) {
      CAPTURE(odd);
      std::vector<float> weights(kTileSize, 0.5f);
      weights[700] = 1.0f;
      weights[3] = odd;
      const RowView row{weights.data(), DType::kFloat32, kTileSize, {}};
      RunWarp([&](EmulatedTeam& team) {
        EmulatedTeam::Tile tile;
        team.Load(row, 0, kAllSteps, Identity{}, &tile);
        uint64_t sum = 0;
        const auto threshold_of = [&](uint64_t all) {
          sum = all;
          return all / 2;
        };
        const PrefixPlace found = team.Draw(Identity{}, threshold_of, tile);
        CHECK(sum <= uint64_t{kTileSize} << (kWeightBits + 1));
        CHECK(found.element >= -1);
        CHECK(found.element < kTileSize);
      });
    }
  }

  TEST_CASE("a warp draws the term that a loop over integer weights draws") {
    std::mt19937_64 random(74);
    // Lanes hold the masses of up to 128 tiles.
    for (const int32_t count : {1, 5, 31, 32, 33, 64, 65, 127, 128, 129, 500}) {
      for (const int exponent : kExponents) {
        CAPTURE(exponent);
        CAPTURE(count);
        const std::vector<float> masses = WeightsBelow(exponent, count, &random);
        CheckDraws(IntegersOf(masses), [&](EmulatedTeam& team, const auto& threshold_of) {
          return team.DrawTerm(
              count, [&](int32_t i) { return masses[i]; }, threshold_of);
        });
      }
      RunWarp([&](EmulatedTeam& team) {
        const auto nothing = [](int32_t) { return 0.0f; };
        CHECK(team.DrawTerm(count, nothing, [](uint64_t) { return uint64_t{0}; }).element == -1);
      });
    }
  }

  TEST_CASE("a warp sets one element of a tile in memory, if the tile has it") {
    std::vector<float> values(2000, 1.0f);
    const RowView row{values.data(), DType::kFloat32, 2000, {}};
    for (const uint32_t steps : {kAllSteps, 0xA5u}) {
      for (const int32_t element : {-1, 0, 7, 8, 255, 256, 1791, 1792, 1999, 2000, 2047, 2048}) {
        CAPTURE(steps);
        CAPTURE(element);
        std::vector<float> stored(kTileSize, 0.0f);
        RunWarp([&](EmulatedTeam& team) {
          EmulatedTeam::Tile tile;
          team.Load(row, 0, steps, Identity{}, &tile);
          team.SetInMemory(element, 5.0f, &tile);
          team.Store(Identity{}, tile, kTileSize, stored.data());
        });
        for (int32_t i = 0; i < kTileSize; ++i) {
          const bool is_here = i < 2000 && (steps >> (i / kLanes) & 1u) != 0;
          CHECK(stored[i] == (is_here ? (i == element ? 5.0f : 1.0f) : -kInfinity));
        }
      }
    }
  }
}

}  // namespace
}  // namespace specd
