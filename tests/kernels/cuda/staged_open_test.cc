// Rounds staged ahead of the answers of those before them, on a pretended device.
#include "tests/kernels/cuda/staged_open.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace specd {
namespace {

TEST_SUITE("invariance") {
  TEST_CASE("as many rounds as may be staged at a time have the answers of a host that waits") {
    for (RoundCase::Options options : KindsOfOpenRounds()) {
      CAPTURE(options.seed);
      options.batch = 12;
      const auto num_slots = static_cast<uint32_t>(2 * options.batch);
      StagingRig rig(options, num_slots);
      const auto graph = rig.Enqueue(4);
      SlotRounds rounds(options, true);
      for (int repeat = 0; repeat < 2; ++repeat) {
        rig.gpu.Replay(graph);  // there is none
        std::vector<std::unique_ptr<StagedOpen>> staged;
        for (int i = 0; i < kStagedRoundsMax; ++i) {
          rounds.Next();
          staged.push_back(std::make_unique<StagedOpen>(&rounds, &rig.imported));
          REQUIRE_OK(rig.backend.Stage(staged.back()->batch));
        }
        for (const auto& round : staged) {
          rig.gpu.Replay(graph);
          REQUIRE(rig.Collect());
          round->CheckAnswers();
        }
      }
      CHECK(rounds.num_continued() > 0);
      CHECK(rig.gpu.num_resolves > 0);
    }
  }
}

}  // namespace
}  // namespace specd
