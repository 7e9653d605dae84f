// The engine's half of opening a sequence: specd_params becomes the message that asks for it.
//
// Here only what does not travel is checked, the caller's arrays and has_seed; what the names and
// values mean is checked where they are used. daemon/session/open_request.h is the other
// half. Pure but for the memfd it makes; safe from any thread.
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
  UniqueFd lists;  // valid where the request has ids outside the message
  uint32_t num_sequences = 1;
};

absl::StatusOr<OpenMessage> MakeOpenMessage(std::string_view request_id,
                                            const specd_params& params);

}  // namespace specd
