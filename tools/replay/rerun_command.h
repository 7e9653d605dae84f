// RunRerun decides recorded drafts again with other settings, for `specd-replay rerun`.
// It runs on the main thread.
#pragma once

#include "tools/replay/command.h"

namespace specd::replay {

absl::StatusOr<int> RunRerun(const CommandOptions& options);

}  // namespace specd::replay
