// StagedPlan and StagedTurn describe the turns of staged rounds for the launches that run them.
//
// A launch gets a StagedPlan by value. Turns leave a StagedTurn in device memory for later turns.
// kernels/warps/staged_turn.h runs the turns. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/fused_round.h"
#include "kernels/core/round_launch.h"

namespace specd {

// The state of turns, in device memory; 0 at first.
struct StagedTurn {
  uint64_t num_done = 0;  // the rounds that are done
  // The turn in progress.
  const char* source = nullptr;  // the area that holds its staged round
  uint64_t size_bytes = 0;       // the size of that round; 0: the turn has no round
};

struct StagedPlan {
  // Pinned memory. Each area is like the source of a FetchPlan; its header has the round's number.
  const char* areas = nullptr;
  size_t area_bytes = 0;
  uint64_t num_areas = 1;
  uint64_t* done = nullptr;  // for each area, the number of the last round that was done

  // Device memory.
  StagedTurn* turn = nullptr;
  void* destination = nullptr;  // area_bytes; every round is fetched to this address
  FusedRound* round = nullptr;  // the address of a round in `destination`
  size_t usual_bytes = 0;       // as in FetchPlan
};

}  // namespace specd
