// ChildProcess is another program that a suite measures against: a daemon or an interpreter. It
// ends with the object, and with this process.
//
// DaemonProcess is a daemon in a folder of its own, which can be killed and started again at the
// same socket. PythonProcess is an interpreter that runs a script and answers line by line. One
// thread uses each.
//
//   auto process = PythonProcess::Start({.interpreter = "python3", .script = kScript});
//   auto answer = (*process)->Ask("round_batch 5");
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"
#include "tools/bench/timing.h"

namespace specd::bench {

// A directory under the system's temporary one, which is removed with the object.
class TemporaryFolder {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Make();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file, and returns its path.
  absl::StatusOr<std::string> Write(std::string_view name, std::string_view text) const;

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> words;  // the program, and its arguments
    int cpu = -1;                    // the one that it may use; -1: all
    int socket = -1;                 // its standard input and output; -1: those of this process
  };
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const Options& options);
  // SIGKILL.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  bool HasEnded() const;

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  const pid_t pid_;
};

class DaemonProcess {
 public:
  // The program specd beside specd-bench, which gets these arguments beside --listen. Unless they
  // say otherwise, it serves without text, with one thread and without a log. It may use `cpu`
  // alone; -1: all.
  explicit DaemonProcess(std::vector<std::string> arguments, int cpu = -1)
      : arguments_(std::move(arguments)), cpu_(cpu) {}

  // Returns the ms until it takes connections.
  absl::StatusOr<double> Start();
  void Kill() { process_.reset(); }
  // REQUIRES, of all: it was started.
  std::string path() const { return folder_->path() + "/s"; }  // of its socket
  std::string uri() const { return "unix:" + path(); }

 private:
  const std::vector<std::string> arguments_;
  const int cpu_;
  std::unique_ptr<TemporaryFolder> folder_;
  std::unique_ptr<ChildProcess> process_;
};

class PythonProcess {
 public:
  struct Options {
    std::string interpreter;
    std::string_view script;  // the name of an embedded file
    std::vector<std::string> arguments = {};
  };
  static absl::StatusOr<std::unique_ptr<PythonProcess>> Start(const Options& options);

  // Sends the line and waits for the next one.
  absl::StatusOr<std::string> Ask(std::string line);
  // The same for an answer that has so many numbers.
  absl::StatusOr<Times> AskTimes(std::string line, size_t count);
  // The next line, without its end. Internal: the interpreter has ended.
  absl::StatusOr<std::string> ReadLine();

 private:
  explicit PythonProcess(UniqueFd socket) : socket_(std::move(socket)) {}

  const UniqueFd socket_;
  std::string received_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace specd::bench
