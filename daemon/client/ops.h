// The library calls of <specd/ops.h> take rows of this process through the algorithms of a round.
//
// ops_api.cc wraps these functions for C. Errors are made with ipc/base/error.h, and nothing is
// written before everything is checked. Any thread: each thread has a backend of its own, whose
// memory stays for the thread's next call.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "ipc/include/specd/ops.h"
#include "kernels/core/round.h"

namespace specd {

enum class RowOp { kSoftmax, kTopKRenorm, kTopPRenorm, kTopKMask };

// The parameters that a RowOp may take besides rows; the others stay at their defaults.
struct RowOpParams {
  specd_row_doubles temperature = {nullptr, 0};
  specd_row_doubles top_p = {nullptr, 0};
  specd_row_ints top_k = {nullptr, 0};
};

absl::Status TransformRows(RowOp op, const specd_rows& rows, const RowOpParams& params, float* out,
                           uint32_t* statuses);
absl::Status SampleRows(const specd_rows& rows, const specd_sampling& sampling, int32_t* ids,
                        uint32_t* statuses);
absl::Status ArgmaxRows(const specd_rows& rows, int32_t* ids, uint32_t* statuses);

}  // namespace specd
