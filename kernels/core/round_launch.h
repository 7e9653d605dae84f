// RoundBounds and the plans describe launches for a captured graph. A launch gets them by value.
//
// They hold the sizes and addresses that are the same for every round of a batch bucket. Facts that
// differ from round to round lie in memory. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/types.h"

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
  uint64_t number = 0;      // the number of a staged round, from 1 on (core/staged_turn.h)
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

// A benchmark of kernels that read rows: the rows are read, and the elements are not used. An array
// in device memory names the rows. If the ends of a row are not a whole kReadUnit, their bytes are
// not read.
struct ReadPlan {
  const void* const* rows = nullptr;
  int32_t num_rows = 0;
  int64_t row_bytes = 0;
  uint32_t* sink = nullptr;  // one word
};
inline constexpr size_t kReadUnit = 16;

// A benchmark of exp2 in a round: the weights of rows are summed as before a decision, and the sums
// are not used. All rows have one type and one vocabulary and are not edited.
struct WeighPlan {
  const void* const* rows = nullptr;  // in device memory
  int32_t num_rows = 0;
  DType dtype = DType::kFloat32;
  int32_t vocab_size = 0;
  float scale = 0;             // log2(e) / temperature
  char* workspaces = nullptr;  // AheadSlotBytes (kernels/bodies/read_ahead.h) for each row
  bool approximate = false;    // uses the device's own exp2, which has other bits than the answers
};

}  // namespace specd
