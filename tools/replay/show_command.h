// RunShow prints the decisions of one round with their numbers, for `specd-replay show`.
// It runs on the main thread.
#pragma once

#include "tools/replay/command.h"

namespace specd::replay {

absl::StatusOr<int> RunShow(const CommandOptions& options);

}  // namespace specd::replay
