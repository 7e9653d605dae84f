// Rounds staged ahead in an engine's graph, against a host that waits for each answer, for every
// size and many schedules. All launches of a replay run as emulated blocks: the turn, the fetch,
// resolving, the round, its deferred tasks, and the end of the turn.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/cuda/conformance_grid.h"
#include "tests/kernels/cuda/staged_open.h"

namespace specd {
namespace {

// Rounds of one shape, each replayed under the next schedule. Returns the number after the last.
int32_t CheckStaged(const RoundCase::Options& options, int32_t first, int32_t num_schedules) {
  StagingRig rig(options, static_cast<uint32_t>(2 * options.batch));
  const auto graph = rig.Enqueue(options.batch);
  SlotRounds rounds(options, true);
  int32_t next = first;
  while (next < first + num_schedules) {
    const int32_t num_staged = std::min(first + num_schedules - next, kStagedRoundsMax);
    std::vector<std::unique_ptr<StagedOpen>> staged;
    for (int32_t i = 0; i < num_staged; ++i) {
      rounds.Next();
      staged.push_back(std::make_unique<StagedOpen>(&rounds, &rig.imported));
      REQUIRE_OK(rig.backend.Stage(staged.back()->batch));
    }
    for (const auto& round : staged) {
      const EmulationOptions schedule = QuickScheduleAt(next++, 0);
      rig.gpu.num_threads = schedule.num_threads;
      rig.gpu.num_blocks = schedule.num_blocks;
      CAPTURE(schedule.num_threads);
      CAPTURE(schedule.num_blocks);
      rig.gpu.Replay(graph);
      REQUIRE(rig.Collect());
      round->CheckAnswers();
    }
  }
  CHECK(rig.gpu.num_resolves > 0);
  CHECK((rounds.num_trees() > 0) == options.trees);
  CHECK((rounds.num_refused() > 0) == options.trees);
  return next;
}

TEST_SUITE("conformance") {
  TEST_CASE("staged rounds whose drafts are trees, with parents by slot in both forms") {
    for (const uint64_t seed : {720, 721}) {
      for (const int32_t vocab_size : {300, 2 * kTileSize + 77}) {
        CAPTURE(seed);
        CheckStaged(
            {.vocab_size = vocab_size, .batch = 6, .max_draft = 7, .seed = seed, .trees = true}, 0,
            12);
      }
    }
  }

  TEST_CASE("staged rounds of every small size, under 50 schedules each") {
    constexpr int32_t kPerShape = (kSmallSchedules + kNumShapes - 1) / kNumShapes;
    int32_t next = 0;
    for (const int32_t vocab_size : kSmallSizes) {
      for (const Shape& shape : kShapes) {
        INFO(shape.name, ", V = ", vocab_size);
        next = CheckStaged(OptionsOf(shape, vocab_size, 3, 3), next, kPerShape);
      }
    }
  }

  TEST_CASE("staged rounds of every large size, under three schedules each") {
    int32_t next = 0;
    for (const int32_t vocab_size : kLargeSizes) {
      const Shape& shape = kShapes[next / kLargeSchedules % kNumShapes];
      INFO(shape.name, ", V = ", vocab_size);
      next = CheckStaged(OptionsOf(shape, vocab_size, 2, 3), next, kLargeSchedules);
    }
  }
}

}  // namespace
}  // namespace specd
