// RoundTrees turns the drafts of a RoundCase into trees, for tests that compare processors.
//
// Siblings that were drawn share a draft row and a kind. Some ids are equal, forbidden, outside the
// vocabulary or -1, as in the chains of the round. With draft_edits some places are forced to the
// id of a child. Both must outlive the batches of the round.
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
  // Before MakeLossy: the trees that read q and have a side channel, and the places whose forced id
  // is left out of the q of a drawn sibling.
  int num_with_sides() const { return num_with_sides_; }
  int num_forced_out() const { return num_forced_out_; }
  RoundTrees(const RoundTrees&) = delete;
  RoundTrees& operator=(const RoundTrees&) = delete;

 private:
  struct Tree {
    std::vector<int32_t> parents;
    std::vector<DraftKind> kinds;
    std::vector<uint32_t> draft_rows;
    std::vector<PlaceEdits> places;
  };
  // Forces places to the ids of one-hot children.
  void ForcePlaces(int32_t vocab_size, uint64_t seed, Tree* tree, Task* task);

  std::vector<Tree> trees_;
  std::vector<float> rates_;
  int num_with_sides_ = 0;
  int num_forced_out_ = 0;
};

}  // namespace specd
