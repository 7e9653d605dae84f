// The functions here are specctl's commands that ask a daemon: they list its engines and its
// sequences, end these, drain it, and write its traces.
//
// Each prints its answer and returns the exit status. A daemon answers by the user who asks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "ipc/control/control.h"

namespace specd::ctl {

inline constexpr int kExitNoDaemon = 1;      // or it gave no answer
inline constexpr int kExitNotFound = 3;      // no such sequence, nothing is recorded
inline constexpr int kExitNotPermitted = 4;  // for this user

struct OperateOptions {
  std::string socket;  // the path
  bool json = false;
  bool ids = false;                      // list: request ids alone
  uint64_t stream = 0;                   // abort and show: in place of a request id
  std::vector<std::string> request_ids;  // of the command line
  bool wait = true;                      // drain: until the daemon has ended
};

int List(const OperateOptions& options);
int Sessions(const OperateOptions& options);
int Show(const OperateOptions& options);
int Abort(const OperateOptions& options);
int AbortAll(const OperateOptions& options);
int Drain(const OperateOptions& options);
int DumpTraces(const OperateOptions& options);

// Lets each session write its trace, and appends the answers. After an error `traces` has those of
// the sessions before it.
absl::Status AskForTraces(const std::string& socket, std::vector<SessionTraceReply>* traces);
// A line without its end, and members of a JSON object.
std::string TraceText(const SessionTraceReply& trace);
std::string TraceMembers(const SessionTraceReply& trace);

// Prints a sentence on stderr, after what was printed before; returns the status.
int Fail(int status, std::string_view message);

}  // namespace specd::ctl
