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

#include "ipc/control/control.h"
#include "tools/terminal/terminal.h"

namespace specd::ctl {

// REQUIRES, of all: CheckLists (sequence_list.h) is OK.
void PrintSessions(const SessionListReply& reply, Paint paint, std::FILE* out);
std::string SessionsJson(const SessionListReply& reply);

// The limits of one session by name, each with what is used of it; empty if it is not in the list.
std::vector<std::pair<std::string, std::string>> LimitsOf(const SessionListReply& reply,
                                                          uint64_t session);

}  // namespace specd::ctl
