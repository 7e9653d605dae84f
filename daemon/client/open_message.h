// The functions here turn specd_params into the message that opens a sequence, for Engine.
//
// They check only the things that do not travel: the caller's arrays and has_seed. The verifier
// checks names and values; its half is daemon/session/open_request.h. Pure except for the memfd
// that is made; safe from any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"
#include "ipc/control/control.h"
#include "ipc/include/specd/specd.h"

namespace specd {

struct OpenMessage {
  OpenSequenceRequest request;
  UniqueFd lists;  // valid if the request has ids outside the message
  uint32_t num_sequences = 1;
};

absl::StatusOr<OpenMessage> MakeOpenMessage(std::string_view request_id,
                                            const specd_params& params);

}  // namespace specd
