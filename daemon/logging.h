// The daemon's named loggers (spdlog): attach, verify, egress, detok. One line per event that an
// operator wants to know; nothing is logged per round.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

#include "absl/status/status.h"

namespace specd {

// Makes the loggers, on stderr. INVALID_ARGUMENT for an unknown level. Call once, before Log().
absl::Status SetUpLogging(const std::string& level);

// REQUIRES: name is one of the four above.
spdlog::logger& Log(const char* name);

}  // namespace specd
