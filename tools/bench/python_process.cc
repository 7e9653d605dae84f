#include "tools/bench/python_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace specd::bench {
namespace {

absl::Status PythonError(std::string_view what) {
  return absl::InternalError(fmt::format("python: {}", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PythonProcess>> PythonProcess::Start(const Options& options) {
  int commands[2];
  int answers[2];
  if (pipe(commands) != 0 || pipe(answers) != 0) return PythonError("no pipe to the interpreter");
  // Everything is made before the fork: the child calls nothing that takes memory.
  std::vector<const char*> words = {options.interpreter.c_str(), "-c", options.script};
  for (const std::string& argument : options.arguments) words.push_back(argument.c_str());
  words.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return PythonError("no process for the interpreter");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(commands[0], STDIN_FILENO);
    dup2(answers[1], STDOUT_FILENO);
    for (const int fd : {commands[0], commands[1], answers[0], answers[1]}) close(fd);
    execvp(words[0], const_cast<char* const*>(words.data()));
    _exit(127);
  }
  close(commands[0]);
  close(answers[1]);
  // A line to an interpreter that has ended is an error, and no signal.
  signal(SIGPIPE, SIG_IGN);
  return std::unique_ptr<PythonProcess>(
      new PythonProcess(pid, fdopen(commands[1], "w"), fdopen(answers[0], "r")));
}

PythonProcess::~PythonProcess() {
  fclose(to_);
  fclose(from_);
  waitpid(pid_, nullptr, 0);
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
