// RunCut and RunAnonymise write a smaller trace, for `specd-replay cut` and `anonymise`.
// It runs on the main thread.
#pragma once

#include "tools/replay/command.h"

namespace specd::replay {

absl::StatusOr<int> RunCut(const CommandOptions& options);
absl::StatusOr<int> RunAnonymise(const CommandOptions& options);

}  // namespace specd::replay
