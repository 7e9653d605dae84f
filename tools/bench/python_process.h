// PythonProcess is an interpreter that runs a script and answers line by line, for suites that
// measure against Python. It ends with the object, and with this process. One thread.
//
//   auto process = PythonProcess::Start({.interpreter = "python3", .script = kScript});
//   auto answer = (*process)->Ask("round_batch 5");
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/child_process.h"

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
  PythonProcess(std::unique_ptr<ChildProcess> process, std::FILE* to, std::FILE* from)
      : process_(std::move(process)), to_(to), from_(from) {}

  const std::unique_ptr<ChildProcess> process_;
  std::FILE* const to_;
  std::FILE* const from_;
};

}  // namespace specd::bench
