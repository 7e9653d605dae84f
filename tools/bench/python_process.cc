#include "tools/bench/python_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "ipc/base/unique_fd.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

absl::Status PythonError(std::string_view what) {
  return absl::InternalError(fmt::format("python: {}", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PythonProcess>> PythonProcess::Start(const Options& options) {
  int commands[2];
  int answers[2];
  if (pipe2(commands, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0) {
    return PythonError("no pipe to the interpreter");
  }
  const UniqueFd input(commands[0]);
  const UniqueFd output(answers[1]);
  std::vector<std::string> words = {options.interpreter, "-c", options.script};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  SPECD_TAKE(auto process,
             ChildProcess::Start(
                 {.words = std::move(words), .input = input.get(), .output = output.get()}));
  // A line to an interpreter that has ended is an error, and no signal.
  signal(SIGPIPE, SIG_IGN);
  return std::unique_ptr<PythonProcess>(
      new PythonProcess(std::move(process), fdopen(commands[1], "w"), fdopen(answers[0], "r")));
}

PythonProcess::~PythonProcess() {
  fclose(to_);
  fclose(from_);
  process_->Wait();
}

absl::StatusOr<std::string> PythonProcess::Ask(std::string_view line) {
  // fmt::print throws where the interpreter has ended; ReadLine says so.
  std::fputs(fmt::format("{}\n", line).c_str(), to_);
  fflush(to_);
  return ReadLine();
}

absl::StatusOr<std::string> PythonProcess::ReadLine() {
  std::string line;
  for (int byte = getc(from_); byte != '\n'; byte = getc(from_)) {
    if (byte == EOF) return PythonError("the interpreter has ended");
    line += static_cast<char>(byte);
  }
  return line;
}

}  // namespace specd::bench
