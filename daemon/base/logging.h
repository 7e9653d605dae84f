// The daemon's named loggers (spdlog): attach, verify, egress, detok. One line per event that an
// operator wants to know; nothing is logged per round.
#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace specd {

// Makes the loggers, on stderr. INVALID_ARGUMENT for an unknown level. Call once, before Log().
absl::Status SetUpLogging(const std::string& level);

// REQUIRES: name is one of the four above.
spdlog::logger& Log(const char* name);

// Text from outside as one printable line: what goes into a log must not look like another line of
// it.
std::string Printable(std::string_view text);

}  // namespace specd
