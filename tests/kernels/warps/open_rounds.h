// CheckOpenRounds compares rounds with incomplete tasks for tests of every processor that runs
// rounds.
//
// The expected answers are those of the scalar team for the same rounds, from a host that knows all
// facts.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/kernels/cuda/run_round.h"
#include "tests/support/grid_size.h"
#include "tests/support/slot_rounds.h"

namespace specd {

// Runs the batch and returns the answers.
struct RoundProcessor {
  std::string name;
  std::function<std::vector<std::string>(RoundCase& round, const RoundBatch& batch)> run;
};
inline std::vector<std::string> ByScalarTeam(RoundCase& round, const RoundBatch& batch) {
  return ScalarAnswers(round, batch);
}
// Runs three rounds of the same sequences by one processor after another. `knowing` gets the rounds
// with complete tasks.
inline void CheckOpenRounds(const RoundCase::Options& options,
                            const std::vector<RoundProcessor>& processors,
                            const RoundProcessor& knowing = {"knowing", ByScalarTeam}) {
  SlotRounds rounds(options);
  std::vector<SlotMemory> memories(processors.size(), SlotMemory(options));
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    rounds.Next();
    const std::vector<std::string> expected = knowing.run(rounds.round(), rounds.Known());
    rounds.Commit();
    for (size_t p = 0; p < processors.size(); ++p) {
      INFO(processors[p].name);
      const RoundBatch batch = rounds.Open(&memories[p]);
      const std::vector<std::string> answers = processors[p].run(rounds.round(), batch);
      REQUIRE(answers.size() == expected.size());
      for (size_t i = 0; i < expected.size(); ++i) REQUIRE(answers[i] == expected[i]);
    }
  }
  CHECK(rounds.num_by_slot() > 0);
  CHECK(rounds.num_continued() > 0);
  CHECK((rounds.num_trees() > 0) == options.trees);
}

inline std::vector<RoundCase::Options> KindsOfOpenRounds() {
  std::vector<RoundCase::Options> kinds;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    kinds.push_back({.vocab_size = seed % 2 == 0 ? 2 * kTileSize + 77 : 300,
                     .batch = GridSize({.full = 24, .sanitized = 8}),
                     .max_draft = 1 + static_cast<int32_t>(seed % 4),
                     .seed = 700 + seed});
  }
  kinds[1].dtype = DType::kBFloat16;
  kinds[2].dtype = DType::kFloat16;
  kinds[3].target_kind = kinds[3].draft_kind = RowKind::kProbabilities;
  kinds[4].target_kind = kinds[4].draft_kind = RowKind::kFinalProbabilities;
  kinds[5].draft_kind = RowKind::kFinalProbabilities;
  kinds[6].plain = true;
  kinds[7].scaled = true;
  // Drafts that a warp resolves in several steps.
  kinds.push_back({.vocab_size = 300, .batch = 8, .max_draft = 64, .seed = 708});
  // Trees, whose parents come in one form and in the other.
  for (uint64_t seed = 710; seed < 714; ++seed) {
    kinds.push_back({.vocab_size = seed < 712 ? 300 : 2 * kTileSize + 77,
                     .batch = GridSize({.full = 24, .sanitized = 8}),
                     .max_draft = seed % 2 == 0 ? 8 : 4,
                     .seed = seed,
                     .trees = true});
  }
  return kinds;
}

}  // namespace specd
