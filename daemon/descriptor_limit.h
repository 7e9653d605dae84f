// CheckDescriptors tells at the start whether the limit of open files leaves room for an engine.
//
// A daemon without that room would start, and engines would wait for it in vain. The numbers are
// those of a daemon and an engine that use everything once: tests/process/fault_test.py runs both
// at the least limit. Call the functions before any other thread opens files.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "daemon/config.h"

namespace specd {

// The files that RunDaemon opens for itself. A device or a plugin opens more, which nobody knows
// before.
uint64_t CountOwnDescriptors(const DaemonConfig& config);

// An error that names the limit that is needed, if `to_open` files and one engine's have no room.
absl::Status CheckDescriptors(const DaemonConfig& config, uint64_t to_open);

// The limit that as many engines need as --max_sessions allows; 0: the present one is enough.
uint64_t FindLimitForSessions(const DaemonConfig& config);

}  // namespace specd
