// DiagnoseDaemon is the command "doctor": the daemon writes the trace of each session, and the
// doctor of specd-replay examines what was written.
//
// A session's trace is what its recorder holds: the rounds of a flight recorder, or all
// files of a recording. The files have to be readable by this user on this machine. It prints the
// findings and returns the exit status.
#pragma once

#include "tools/specctl/operate.h"

namespace specd::ctl {

inline constexpr int kExitFault = 1;        // of `doctor` alone
inline constexpr int kExitDoctorError = 2;  // whatever kept it from an examination

int DiagnoseDaemon(const OperateOptions& options);

}  // namespace specd::ctl
