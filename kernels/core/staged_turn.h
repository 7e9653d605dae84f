// What a launch of a staged round is given by value, and what its turns leave in device memory for
// one another. kernels/warps/staged_turn.h says what is done with it.
//
// Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/fused_round.h"
#include "kernels/core/round_launch.h"

namespace specd {

// In device memory, 0 at first.
struct StagedTurn {
  uint64_t num_done = 0;  // rounds
  // Of the turn under way.
  const char* source = nullptr;  // the area in which its round is staged
  uint64_t size_bytes = 0;       // of that round; 0: none is there
};

struct StagedPlan {
  // Pinned memory. Each area is like the source of a FetchPlan; its header has the round's number.
  const char* areas = nullptr;
  size_t area_bytes = 0;
  uint64_t num_areas = 1;
  uint64_t* done = nullptr;  // of each area the number of the last round that was done

  // Device memory.
  StagedTurn* turn = nullptr;
  void* destination = nullptr;  // area_bytes of it; every round is fetched there
  FusedRound* round = nullptr;  // where in it a round begins
  size_t usual_bytes = 0;       // FetchPlan
};

}  // namespace specd
