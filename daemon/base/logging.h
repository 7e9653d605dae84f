// Log gives the daemon its named loggers (spdlog): attach, verify, egress, detok, trace. A logger
// writes one line per event that an operator wants to know. Rounds log nothing.
#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace specd {

// Makes the loggers, on stderr. INVALID_ARGUMENT for an unknown level. Call it once, before Log().
absl::Status SetUpLogging(const std::string& level);

// REQUIRES: name is one of the five above.
spdlog::logger& Log(const char* name);

// Makes text from outside one printable line, which cannot look like another line of the log.
std::string Printable(std::string_view text);

}  // namespace specd
