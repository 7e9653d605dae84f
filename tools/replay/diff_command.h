// RunDiff finds the first difference between two runs and its cause, for `specd-replay diff`.
// It runs on the main thread.
#pragma once

#include "tools/replay/command.h"

namespace specd::replay {

absl::StatusOr<int> RunDiff(const CommandOptions& options);

}  // namespace specd::replay
