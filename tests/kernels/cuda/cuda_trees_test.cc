// Drafts that are trees on a real device against the CPU: suite "gpu". Without a device a case
// passes and says that nothing was compared, unless SPECD_REQUIRE_GPU is set.
#include <doctest/doctest.h>

#include <optional>

#include "kernels/bodies/tiles.h"
#include "tests/kernels/cuda/device_comparison.h"
#include "tests/support/round_trees.h"

namespace specd {
namespace {

TEST_SUITE("gpu") {
  TEST_CASE("CUDA rounds: drafts that are trees") {
    OnDevice([](Comparison& comparison) {
      int num_with_sides = 0;
      int num_forced_out = 0;
      for (int i = 0; i < 4; ++i) {
        RoundCase::Options options{
            .vocab_size = 300, .batch = 24, .max_draft = 6, .seed = 700 + uint64_t(i)};
        if (i == 1) options.vocab_size = 2 * kTileSize + 77;
        if (i == 2) options.dtype = DType::kBFloat16;
        if (i == 3) options.sampled = true;
        std::optional<RoundTrees> trees;
        CheckRound(comparison, options,
                   [&](RoundCase& round) { trees.emplace(&round, options.batch, options.seed); });
        num_with_sides += trees->num_with_sides();
        num_forced_out += trees->num_forced_out();
      }
      CHECK(num_with_sides > 0);
      CHECK(num_forced_out > 0);
    });
  }

  TEST_CASE("CUDA rounds: lossy methods and SGLang's generator, for chains and trees") {
    OnDevice([](Comparison& comparison) {
      for (int i = 0; i < 3; ++i) {
        RoundCase::Options options{
            .vocab_size = 300, .batch = 24, .max_draft = 5, .seed = 740 + uint64_t(i)};
        options.dtype = kDTypes[i % 3];
        if (i == 1) options.vocab_size = 2 * kTileSize + 77;
        std::optional<RoundTrees> trees;
        CheckRound(comparison, options, [&](RoundCase& round) {
          trees.emplace(&round, options.batch, options.seed);
          trees->MakeLossy(&round, options.seed);
        });
      }
    });
  }

  TEST_CASE("CUDA rounds: narrow draft rows, for chains and trees") {
    OnDevice([](Comparison& comparison) {
      for (int i = 0; i < 6; ++i) {
        RoundCase::Options options{.vocab_size = 300,
                                   .batch = 24,
                                   .max_draft = 5,
                                   .seed = 720 + uint64_t(i),
                                   .num_columns = 70};
        options.dtype = kDTypes[i % 3];
        if (i % 2 == 1) options.vocab_size = 2 * kTileSize + 77;
        options.sampled = i < 3;
        std::optional<RoundTrees> trees;
        CheckRound(comparison, options, [&](RoundCase& round) {
          if (i >= 2) trees.emplace(&round, options.batch, options.seed);
        });
      }
    });
  }
}

}  // namespace
}  // namespace specd
