// Random rounds with everything in them, by the scalar team and by emulated blocks: one answer.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/cuda/run_round.h"
#include "tests/support/grid_size.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

TEST_SUITE("invariance") {
  TEST_CASE("a round in one launch, of any number of blocks, gives the scalar team's answers") {
    std::mt19937_64 random(85);
    for (int repeat = 0; repeat < 8; ++repeat) {
      RoundCase::Options options{.vocab_size = repeat % 2 == 0 ? 3 * kTileSize + 77 : 300,
                                 .batch = GridSize({.full = 24, .sanitized = 8}),
                                 .max_draft = 3,
                                 .seed = 86 + uint64_t(repeat)};
      if (repeat < 3) options.dtype = static_cast<DType>(repeat);
      if (repeat == 4) options.target_kind = options.draft_kind = RowKind::kProbabilities;
      if (repeat == 5) options.target_kind = options.draft_kind = RowKind::kFinalProbabilities;
      options.sampled = repeat >= 6;
      RoundCase round(options);
      const std::vector<std::string> expected = ScalarAnswers(round);
      for (const int32_t num_blocks : {1, 2, 7, 200}) {
        CAPTURE(repeat);
        CAPTURE(num_blocks);
        const LaunchResult result = LaunchRound(round, options.max_draft,
                                                {.num_threads = num_blocks == 7 ? 32 : 64,
                                                 .schedule_seed = random(),
                                                 .num_blocks = num_blocks});
        REQUIRE(result.error == "");
        REQUIRE(result.counts_are_back);
        for (int32_t i = 0; i < options.batch; ++i) REQUIRE(result.answers[i] == expected[i]);
      }
    }
  }

  // A forced row is not read, so it has no pass whose end orders the warps. The other warps must
  // still see the leader's notes on the places before it.
  TEST_CASE("block: every warp knows the places of a chain whose last row is forced") {
    std::mt19937_64 random(90);
    RowMatrix target({.vocab_size = 300, .num_rows = 4});
    RowMatrix draft({.vocab_size = 300, .num_rows = 4});
    // p = q, so that all stand but the last token, which p does not have.
    for (int row = 0; row < 4; ++row) {
      std::vector<double> logits = RandomLogits(random, 300);
      draft.Set(row, logits);
      if (row == 2) logits[11] = -INFINITY;
      target.Set(row, logits);
    }
    ChainCase chain(VerifyMethod::kBlock, {7, 9, 11}, DraftKind::kSampled);
    PlaceEdits places[4];
    places[3].forced = 5;
    chain.task.places = places;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const KeyedCoins coins(seed);
      const ChainResult expected = RunScalar(chain.task, target.view(), draft.view(), coins);
      REQUIRE(expected.outcome.num_accepted == 2);
      const ChainResult result = RunEmulated(chain.task, target.view(), draft.view(), coins,
                                             {.num_threads = 128, .schedule_seed = random()});
      REQUIRE(result == expected);
    }
  }
}

}  // namespace
}  // namespace specd
