// CheckParams says whether an embedded engine would open a sequence, for specd_params_check.
//
// It takes the way of an opening up to the sequence itself, without a session. Safe from any
// thread.
#pragma once

#include "absl/status/status.h"
#include "ipc/include/specd/specd.h"

namespace specd {

absl::Status CheckParams(const specd_params& params, const specd_options& options);

}  // namespace specd
