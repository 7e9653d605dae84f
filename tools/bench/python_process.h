// PythonProcess is an interpreter that runs a script and answers line by line, for suites that
// measure against Python. It ends with the object, and with this process. One thread.
//
//   auto process = PythonProcess::Start({.interpreter = "python3", .script = kScript});
//   auto answer = (*process)->Ask("round_batch 5");
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace specd::bench {

class PythonProcess {
 public:
  struct Options {
    std::string interpreter;
    const char* script = nullptr;  // its text
    std::vector<std::string> arguments = {};
  };

  static absl::StatusOr<std::unique_ptr<PythonProcess>> Start(const Options& options);
  ~PythonProcess();
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  // Sends the line and waits for the next one.
  absl::StatusOr<std::string> Ask(std::string_view line);
  // The next line, without its end. Internal: the interpreter has ended.
  absl::StatusOr<std::string> ReadLine();

 private:
  PythonProcess(pid_t pid, std::FILE* to, std::FILE* from) : pid_(pid), to_(to), from_(from) {}

  const pid_t pid_;
  std::FILE* const to_;
  std::FILE* const from_;
};

}  // namespace specd::bench
