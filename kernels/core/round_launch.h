// What a launch is given by value, so that it is part of a captured graph: the sizes and addresses
// that hold for every round of a batch bucket. What differs from round to round lies in memory.
//
// Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/types.h"

namespace specd {

// The largest round that a launch may meet. Its width follows from this and never from the round:
// the bodies share the work of any round among any number of blocks.
struct RoundBounds {
  int32_t num_tasks = 0;
  int32_t max_draft = 0;
  int32_t vocab_size = 0;
  int32_t num_launches = 1;  // FusedRound::num_launches
  // How many tasks the launch is as wide as they want it for; 0: num_tasks.
  int32_t usual_tasks = 0;
};

constexpr int32_t WideFor(const RoundBounds& bounds) {
  return bounds.usual_tasks > 0 ? bounds.usual_tasks : bounds.num_tasks;
}

// What pinned memory begins with that is copied to the device by a launch.
struct FetchHeader {
  uint64_t size_bytes = 0;  // of everything, this header included; a multiple of kFetchUnit
  uint64_t number = 0;      // of a staged round, from 1 on (core/staged_turn.h)
};
inline constexpr size_t kFetchUnit = 16;
static_assert(sizeof(FetchHeader) == kFetchUnit);

// Both places are aligned to kFetchUnit and hold capacity_bytes.
struct FetchPlan {
  const void* source = nullptr;
  void* destination = nullptr;
  size_t capacity_bytes = 0;  // a multiple of kFetchUnit
  size_t usual_bytes = 0;     // what the launch is wide enough to ask for at once
};

// Rows to be read and not used, as a measure for kernels that read them. They are named by an array
// in device memory; bytes at the ends of a row that are no whole kReadUnit are left out.
struct ReadPlan {
  const void* const* rows = nullptr;
  int32_t num_rows = 0;
  int64_t row_bytes = 0;
  uint32_t* sink = nullptr;  // one word
};
inline constexpr size_t kReadUnit = 16;

// Rows whose weights are summed as a round sums them before it decides, and not used: a measure for
// what exp2 costs in it. All are of one type and vocabulary and have nothing done to them.
struct WeighPlan {
  const void* const* rows = nullptr;  // in device memory
  int32_t num_rows = 0;
  DType dtype = DType::kFloat32;
  int32_t vocab_size = 0;
  float scale = 0;             // log2(e) / temperature
  char* workspaces = nullptr;  // AheadSlotBytes (kernels/bodies/read_ahead.h) for each row
  bool approximate = false;    // with the device's own exp2, which gives no answer's bits
};

}  // namespace specd
