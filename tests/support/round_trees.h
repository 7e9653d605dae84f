// RoundTrees turns the drafts of a RoundCase into trees, for tests that compare processors.
//
// Siblings that were drawn share a draft row and a kind. Some ids are equal, forbidden, outside the
// vocabulary or -1, as in the chains of the round. Both must outlive the batches of the round.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/round_case.h"

namespace specd {

class RoundTrees {
 public:
  RoundTrees(RoundCase* round, int32_t batch, uint64_t seed);
  // Gives the tasks with rows lossy methods with random numbers, or SGLang's generator. It changes
  // chains too, if the drafts of the round have no side channel.
  void MakeLossy(RoundCase* round, uint64_t seed);
  RoundTrees(const RoundTrees&) = delete;
  RoundTrees& operator=(const RoundTrees&) = delete;

 private:
  struct Tree {
    std::vector<int32_t> parents;
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> draft_rows;
  };
  std::vector<Tree> trees_;
  std::vector<float> rates_;
};

}  // namespace specd
