// Log gives the daemon its named loggers (spdlog): attach, verify, grammar, egress, detok, trace. A
// logger writes one line per event that an operator wants to know. Rounds log nothing.
//
// Lines go to stderr through a LogWriter, so no thread waits for the reader of the log. Lines that
// a peer can cause go through LogOfPeer, which leaves most of them out if they come by the
// thousand.
#pragma once

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace specd {

struct LogOptions {
  // A level for all loggers, and levels of single ones: "info" or "warn,attach=debug".
  std::string levels = "info";
  std::string format = "text";  // or "json": one object a line
};

// Makes the loggers, on stderr. INVALID_ARGUMENT names what is unknown. Call it before Log().
absl::Status SetUpLogging(const LogOptions& options);

// Writes the lines that are left, as far as stderr takes them. Lines after it are lost.
void StopLogging();

// REQUIRES: name is one of the six above.
spdlog::logger& Log(const char* name);

// Makes text from outside one printable line, which cannot look like another line of the log.
std::string Printable(std::string_view text);

// The arguments of LogOfPeer for one line: the level, and the lines that are counted together.
struct PeerLine {
  const char* logger;
  spdlog::level::level_enum level;
  const char* kind;   // a literal
  uint64_t peer = 0;  // such as a process or user id; 0: unknown
};

// Writes the line, or counts it (log_limit.h).
void WriteOfPeer(const PeerLine& line, std::string_view text);

template <typename... Args>
void LogOfPeer(const PeerLine& line, fmt::format_string<Args...> format, Args&&... args) {
  WriteOfPeer(line, fmt::format(format, std::forward<Args>(args)...));
}

// Opens descriptors 0 to 2 where they are closed, so that no socket takes their numbers. Ignores
// SIGPIPE and SIGXFSZ, so that neither a closed log nor RLIMIT_FSIZE ends the process. Installs the
// handler of FaultGuard, so that an engine's missing page does not. Call it first in main.
void ProtectProcess();

}  // namespace specd
