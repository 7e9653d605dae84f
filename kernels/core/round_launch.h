// RoundBounds and the plans describe launches for a captured graph. A launch gets them by value.
//
// They hold the sizes and addresses that are the same for every round of a batch bucket. Facts that
// differ from round to round lie in memory. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace specd {

// The largest round of a launch. The width of the launch follows from these bounds and never from
// the round: the bodies share the work of any round among any number of blocks.
struct RoundBounds {
  int32_t num_tasks = 0;
  int32_t max_draft = 0;
  int32_t vocab_size = 0;
  int32_t num_launches = 1;  // FusedRound::num_launches
  // The number of tasks that the launch is wide enough for; 0: num_tasks.
  int32_t usual_tasks = 0;
};

constexpr int32_t WideFor(const RoundBounds& bounds) {
  return bounds.usual_tasks > 0 ? bounds.usual_tasks : bounds.num_tasks;
}

// The beginning of pinned memory that a launch copies to the device.
struct FetchHeader {
  uint64_t size_bytes = 0;  // all data, this header included; a multiple of kFetchUnit
  uint64_t number = 0;      // the number of a staged round, from 1 on (kernels/warps/staged_turn.h)
};
inline constexpr size_t kFetchUnit = 16;
static_assert(sizeof(FetchHeader) == kFetchUnit);

// A copy by a launch. Source and destination are aligned to kFetchUnit and hold capacity_bytes.
struct FetchPlan {
  const void* source = nullptr;
  void* destination = nullptr;
  size_t capacity_bytes = 0;  // a multiple of kFetchUnit
  size_t usual_bytes = 0;     // the launch is wide enough to request these bytes at once
};

}  // namespace specd
