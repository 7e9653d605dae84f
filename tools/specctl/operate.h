// The functions here are specctl's commands that ask a daemon: they list its engines and its
// sequences, end these, drain it, and write its traces.
//
// Each prints its answer and returns the exit status. A daemon answers by the user who asks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// Prints a sentence on stderr, after what was printed before; returns the status.
int Fail(int status, std::string_view message);

}  // namespace specd::ctl
