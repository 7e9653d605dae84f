// The C functions of <specd/ops.h> over daemon/client/ops.h. This file has their null checks and
// struct sizes. No exception leaves it.

#include "daemon/client/api_guard.h"
#include "daemon/client/ops.h"
#include "ipc/include/specd/ops.h"

namespace {

using specd::RowOp;
using specd::RowOpParams;
using specd::api::Adopt;
using specd::api::Guard;
using specd::api::NullArgument;

int Transform(RowOp op, const specd_rows* rows, const RowOpParams& params, float* out,
              uint32_t* statuses) {
  if (rows == nullptr) return NullArgument("rows");
  if (out == nullptr) return NullArgument("out");
  return Guard([&]() -> absl::Status {
    specd_rows adopted;
    if (absl::Status status = Adopt(rows, specd_rows_init, &adopted); !status.ok()) return status;
    return specd::TransformRows(op, adopted, params, out, statuses);
  });
}

}  // namespace

extern "C" {

void specd_rows_init(specd_rows* rows) {
  *rows = {};
  rows->struct_size = sizeof(*rows);
  rows->scale = 1;
}

void specd_sampling_init(specd_sampling* sampling) {
  *sampling = {};
  sampling->struct_size = sizeof(*sampling);
}

int specd_softmax(const specd_rows* rows, specd_row_doubles temperature, float* out,
                  uint32_t* statuses) {
  RowOpParams params;
  params.temperature = temperature;
  return Transform(RowOp::kSoftmax, rows, params, out, statuses);
}

int specd_top_k_renorm(const specd_rows* rows, specd_row_ints top_k, float* out,
                       uint32_t* statuses) {
  RowOpParams params;
  params.top_k = top_k;
  return Transform(RowOp::kTopKRenorm, rows, params, out, statuses);
}

int specd_top_p_renorm(const specd_rows* rows, specd_row_doubles top_p, float* out,
                       uint32_t* statuses) {
  RowOpParams params;
  params.top_p = top_p;
  return Transform(RowOp::kTopPRenorm, rows, params, out, statuses);
}

int specd_top_k_mask(const specd_rows* rows, specd_row_ints top_k, float* out, uint32_t* statuses) {
  RowOpParams params;
  params.top_k = top_k;
  return Transform(RowOp::kTopKMask, rows, params, out, statuses);
}

int specd_argmax(const specd_rows* rows, int32_t* ids, uint32_t* statuses) {
  if (rows == nullptr) return NullArgument("rows");
  if (ids == nullptr) return NullArgument("ids");
  return Guard([&]() -> absl::Status {
    specd_rows adopted;
    if (absl::Status status = Adopt(rows, specd_rows_init, &adopted); !status.ok()) return status;
    return specd::ArgmaxRows(adopted, ids, statuses);
  });
}

int specd_sample(const specd_rows* rows, const specd_sampling* sampling, int32_t* ids,
                 uint32_t* statuses) {
  if (rows == nullptr) return NullArgument("rows");
  if (sampling == nullptr) return NullArgument("sampling");
  if (ids == nullptr) return NullArgument("ids");
  return Guard([&]() -> absl::Status {
    specd_rows adopted_rows;
    if (absl::Status status = Adopt(rows, specd_rows_init, &adopted_rows); !status.ok()) {
      return status;
    }
    specd_sampling adopted_sampling;
    if (absl::Status status = Adopt(sampling, specd_sampling_init, &adopted_sampling);
        !status.ok()) {
      return status;
    }
    return specd::SampleRows(adopted_rows, adopted_sampling, ids, statuses);
  });
}

}  // extern "C"
