// RunInfo prints what is in a trace: the build, the times, and counts, for `specd-replay info`.
// It runs on the main thread.
#pragma once

#include "tools/replay/command.h"

namespace specd::replay {

absl::StatusOr<int> RunInfo(const CommandOptions& options);

}  // namespace specd::replay
