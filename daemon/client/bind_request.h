// MakeBindRequest makes the message that binds a role to a tensor, for engines and members.
//
// Any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/control/control_messages.h"
#include "ipc/include/specd/memory.h"

namespace specd {

// `skip_bytes`: the region begins this many bytes before the memory that the caller has registered.
// An error names a field of the tensor that no daemon could read.
absl::StatusOr<BindTensorRequest> MakeBindRequest(uint32_t role, const specd_tensor& tensor,
                                                  uint64_t skip_bytes);

// Puts the daemon's answer to that message into words for the caller: the daemon counts bytes from
// the beginning of the region.
absl::Status ExplainSkip(const absl::Status& status, uint64_t skip_bytes);

}  // namespace specd
