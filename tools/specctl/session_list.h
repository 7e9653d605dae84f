// The functions here print the engines that are attached to a daemon, with what each has of what it
// may have.
//
// Pure but for the file that they print into.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ipc/control/control.h"
#include "tools/terminal/terminal.h"

namespace specd::ctl {

// INTERNAL if the lists of the reply differ in length. The other functions require that they do
// not.
absl::Status CheckSessions(const SessionListReply& reply);

void PrintSessions(const SessionListReply& reply, Paint paint, std::FILE* out);
std::string SessionsJson(const SessionListReply& reply);

// The limits of one session by name, each with what is used of it; empty if it is not in the list.
std::vector<std::pair<std::string, std::string>> LimitsOf(const SessionListReply& reply,
                                                          uint64_t session);

}  // namespace specd::ctl
