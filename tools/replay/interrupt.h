// CatchInterrupts lets Ctrl-C and SIGTERM end specd-replay cleanly.
//
// Call it once, at the start. A command that reads a trace asks WasInterrupted at each record, and
// an OutputFile at each write. The command returns Interrupted(). Unfinished output files are then
// removed, and the program ends with exit status 130. A second signal ends the process at once.
#pragma once

#include "absl/status/status.h"

namespace specd::replay {

inline constexpr int kExitInterrupted = 130;

void CatchInterrupts();
bool WasInterrupted();

// CANCELLED.
absl::Status Interrupted();

}  // namespace specd::replay
