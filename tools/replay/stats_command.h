// RunStats counts acceptance by position, sequence, time, method or class of token, for
// `specd-replay stats`.
#pragma once

#include "tools/replay/command.h"

namespace specd::replay {

absl::StatusOr<int> RunStats(const CommandOptions& options);

}  // namespace specd::replay
