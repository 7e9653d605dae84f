// ChildProcess is another program that a suite measures against: a daemon, specd-http or an
// interpreter. It ends with the object, and with this process.
//
// DaemonProcess is a daemon in a folder of its own, which can be killed and started again at the
// same socket. PythonProcess is an interpreter that runs a script and answers line by line. One
// thread uses each.
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace specd::bench {

// The path of a program of specd: the given one, or the one of this name beside specd-bench.
std::string ProgramOf(const std::string& given, std::string_view name = "specd");

// A directory under the system's temporary one, which is removed with the object.
class TemporaryFolder {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Make(const std::string& parent = "");
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> words;  // the program, and its arguments
    int cpu = -1;                    // the one that it may use; -1: all
    int input = -1;                  // its standard input and output; -1: those of this process
    int output = -1;
    bool is_quiet = false;  // its errors are not shown
  };
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const Options& options);
  // SIGKILL.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Wait();  // for its end
  bool HasEnded();
  pid_t pid() const { return pid_; }

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;  // -1: it has ended
};

class DaemonProcess {
 public:
  // `program` is the path of specd, which gets these arguments beside --listen. It serves without
  // text, with one thread and without a log. It may use `cpu` alone; -1: all.
  DaemonProcess(std::string program, std::vector<std::string> arguments, int cpu = -1)
      : program_(std::move(program)), arguments_(std::move(arguments)), cpu_(cpu) {}

  // Returns the ms until it takes connections.
  absl::StatusOr<double> Start();
  void Kill() { process_.reset(); }
  // REQUIRES: it was started.
  std::string uri() const { return "unix:" + folder_->path() + "/s"; }

 private:
  const std::string program_;
  const std::vector<std::string> arguments_;
  const int cpu_;
  std::unique_ptr<TemporaryFolder> folder_;
  std::unique_ptr<ChildProcess> process_;
};

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
  PythonProcess() = default;

  std::unique_ptr<ChildProcess> process_;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace specd::bench
