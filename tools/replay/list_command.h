// RunList prints one line for each round or sequence of a trace, for `specd-replay list`.
// It runs on the main thread.
#pragma once

#include "tools/replay/command.h"

namespace specd::replay {

absl::StatusOr<int> RunList(const CommandOptions& options);

}  // namespace specd::replay
