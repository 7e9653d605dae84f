#include "tools/toy_engine/draft_sampler.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <vector>

namespace specd::toy {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("the likeliest token, the lowest id on a tie") {
    CHECK(ArgMax(std::vector<float>{-1, 3, 3, 2}) == 1);
    CHECK(ArgMax(std::vector<float>{-5}) == 0);
  }

  // Draws from softmax(row / T): specd corrects for exactly this law, so a wrong temperature here
  // would bias the text without any error.
  TEST_CASE("draws follow the softmax at the temperature") {
    const std::vector<float> row = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
    for (const double temperature : {0.5, 1.0, 2.0}) {
      std::array<double, 3> expected;
      double mass = 0.0;
      for (size_t i = 0; i < 3; ++i) {
        mass += expected[i] = std::pow(std::exp(static_cast<double>(row[i])), 1.0 / temperature);
      }
      DraftSampler sampler(42);
      constexpr int kDraws = 100000;
      std::array<int, 3> counts = {};
      for (int i = 0; i < kDraws; ++i) {
        ++counts[static_cast<size_t>(sampler.Draw(row, temperature))];
      }
      for (size_t i = 0; i < 3; ++i) {
        const double p = expected[i] / mass;
        const double sigma = std::sqrt(p * (1 - p) / kDraws);  // at most 0.0016
        CHECK(std::abs(counts[i] / static_cast<double>(kDraws) - p) < 5 * sigma);
      }
    }
  }

  TEST_CASE("ids without mass are never drawn") {
    const std::vector<float> row = {-1000.0f, 0.0f, -1000.0f, -1000.0f};
    DraftSampler sampler(7);
    for (int i = 0; i < 1000; ++i) CHECK(sampler.Draw(row, 0.01) == 1);
  }

  TEST_CASE("the seed alone decides the draws") {
    const std::vector<float> row(64, 0.0f);
    std::array<std::vector<int32_t>, 3> draws;
    const uint64_t seeds[] = {5, 5, 6};
    for (size_t s = 0; s < 3; ++s) {
      DraftSampler sampler(seeds[s]);
      for (int i = 0; i < 20; ++i) draws[s].push_back(sampler.Draw(row, 1.0));
    }
    CHECK(draws[0] == draws[1]);
    CHECK(draws[0] != draws[2]);
  }
}

}  // namespace
}  // namespace specd::toy
