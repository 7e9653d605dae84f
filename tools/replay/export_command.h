// RunExport writes a trace in the formats of other programs, for `specd-replay export`.
// It runs on the main thread.
#pragma once

#include "tools/replay/command.h"

namespace specd::replay {

absl::StatusOr<int> RunExport(const CommandOptions& options);

}  // namespace specd::replay
