#include "daemon/client/bind_request.h"

#include <fmt/format.h>

#include <limits>
#include <string>

#include "ipc/base/error.h"

namespace specd {

absl::StatusOr<BindTensorRequest> MakeBindRequest(uint32_t role, const specd_tensor& tensor,
                                                  uint64_t skip_bytes) {
  if (tensor.renormalise > 1) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "renormalise",
                     fmt::format("renormalise = {} must be 0 or 1", tensor.renormalise));
  }
  if (tensor.offset_bytes > std::numeric_limits<uint64_t>::max() - skip_bytes) {
    return MakeError(SPECD_ERROR_REGION, "offset_bytes",
                     fmt::format("offset_bytes = {} is outside the region", tensor.offset_bytes));
  }
  return BindTensorRequest{.role = role,
                           .region = tensor.region,
                           .spec = {.dtype = tensor.dtype,
                                    .offset_bytes = tensor.offset_bytes + skip_bytes,
                                    .num_rows = tensor.num_rows,
                                    .row_stride = tensor.row_stride,
                                    .kind = tensor.kind,
                                    .renormalise = tensor.renormalise != 0,
                                    .scale = tensor.scale,
                                    .cap = tensor.cap,
                                    .columns = tensor.columns}};
}

absl::Status ExplainSkip(const absl::Status& status, uint64_t skip_bytes) {
  const int code = ErrorCodeOf(status);
  const std::string field = ErrorFieldOf(status);
  const bool counts_bytes = code == SPECD_ERROR_REGION || field == "offset_bytes";
  if (skip_bytes == 0 || !counts_bytes) return status;
  return MakeError(code, field,
                   fmt::format("{}. The region begins {} bytes before the registered address: "
                               "offset_bytes and the size of the region count them",
                               std::string(status.message()), skip_bytes));
}

}  // namespace specd
