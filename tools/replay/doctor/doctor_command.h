// RunDoctor is the command "doctor": it says why drafts are accepted or not, with a sentence for
// each finding, and prints the figures that the findings come from.
//
// One thread.
#pragma once

#include "absl/status/statusor.h"
#include "tools/replay/command.h"

namespace specd::replay {

absl::StatusOr<int> RunDoctor(const CommandOptions& options);

}  // namespace specd::replay
