// LogAndCountCompiles says and counts how long compiles of constraints took, for ModelProfiles.
//
// Any thread calls the function that is returned. The meters outlive it.
#pragma once

#include "daemon/metrics/daemon_meters.h"
#include "speculative/grammar/compiler/grammar_compiler.h"

namespace specd {

grammar::OnCompile LogAndCountCompiles(DaemonMeters* meters);

}  // namespace specd
