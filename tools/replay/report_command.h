// RunReport writes a trace as one HTML page, for `specd-replay report`.
// It runs on the main thread.
#pragma once

#include "tools/replay/command.h"

namespace specd::replay {

absl::StatusOr<int> RunReport(const CommandOptions& options);

}  // namespace specd::replay
