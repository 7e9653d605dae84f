#include "tools/bench/child_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "ipc/base/unique_fd.h"
#include "ipc/sockets/unix_socket.h"
#include "tools/bench/timing.h"
#include "tools/bench/try.h"

namespace specd::bench {

std::string ProgramOf(const std::string& given, std::string_view name) {
  if (!given.empty()) return given;
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / name;
}

absl::StatusOr<std::unique_ptr<TemporaryFolder>> TemporaryFolder::Make(const std::string& parent) {
  std::string path = parent.empty() ? std::string(std::filesystem::temp_directory_path()) : parent;
  path += "/specd-bench-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::InvalidArgumentError(path +
                                      " cannot be made: give a directory that can be written");
  }
  return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(std::move(path)));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const Options& options) {
  // Everything is made before the fork: the child calls nothing that takes memory.
  std::vector<const char*> words;
  for (const std::string& word : options.words) words.push_back(word.c_str());
  words.push_back(nullptr);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (options.cpu >= 0) CPU_SET(options.cpu, &cpus);
  const pid_t pid = fork();
  if (pid < 0) return Broken("no process for " + options.words.front());
  if (pid > 0) return std::unique_ptr<ChildProcess>(new ChildProcess(pid));
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options.input >= 0) dup2(options.input, STDIN_FILENO);
  if (options.output >= 0) dup2(options.output, STDOUT_FILENO);
  if (options.is_quiet) dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
  if (options.cpu < 0 || sched_setaffinity(0, sizeof(cpus), &cpus) == 0) {
    execvp(words[0], const_cast<char* const*>(words.data()));
  }
  _exit(127);
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) kill(pid_, SIGKILL);
  Wait();
}

void ChildProcess::Wait() {
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool ChildProcess::HasEnded() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = -1;
  return pid_ < 0;
}

absl::StatusOr<double> DaemonProcess::Start() {
  constexpr std::chrono::seconds kPatience(20);
  if (folder_ == nullptr) {
    SPECD_TAKE(folder_, TemporaryFolder::Make());
  }
  const SteadyClock::time_point begin = SteadyClock::now();
  std::vector<std::string> words = {program_, "--listen=" + uri(), "--detokenizer=off",
                                    "--threads=1", "--log_level=off"};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  SPECD_TAKE(process_, ChildProcess::Start({.words = std::move(words), .cpu = cpu_}));
  // The socket file is there before the daemon listens.
  while (!UnixConnection::Connect(folder_->path() + "/s", absl::ZeroDuration()).ok()) {
    if (process_->HasEnded() || SteadyClock::now() - begin > kPatience) {
      return Broken("the daemon does not serve; see --specd");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return MicrosSince(begin) / 1e3;
}

absl::StatusOr<std::unique_ptr<PythonProcess>> PythonProcess::Start(const Options& options) {
  std::unique_ptr<PythonProcess> made(new PythonProcess);
  int commands[2];
  int answers[2];
  if (pipe2(commands, O_CLOEXEC) != 0) return Broken("no pipe to the interpreter");
  const UniqueFd input(commands[0]);
  made->to_ = fdopen(commands[1], "w");
  if (pipe2(answers, O_CLOEXEC) != 0) return Broken("no pipe from the interpreter");
  const UniqueFd output(answers[1]);
  made->from_ = fdopen(answers[0], "r");
  std::vector<std::string> words = {options.interpreter, "-c", options.script};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  SPECD_TAKE(made->process_,
             ChildProcess::Start(
                 {.words = std::move(words), .input = input.get(), .output = output.get()}));
  // A line to an interpreter that has ended is an error, and no signal.
  signal(SIGPIPE, SIG_IGN);
  return made;
}

PythonProcess::~PythonProcess() {
  for (std::FILE* const file : {to_, from_}) {
    if (file != nullptr) fclose(file);
  }
  if (process_ != nullptr) process_->Wait();
}

absl::StatusOr<std::string> PythonProcess::Ask(std::string_view line) {
  std::fprintf(to_, "%.*s\n", static_cast<int>(line.size()), line.data());
  fflush(to_);
  return ReadLine();
}

absl::StatusOr<std::string> PythonProcess::ReadLine() {
  std::string line;
  for (int byte = getc(from_); byte != '\n'; byte = getc(from_)) {
    if (byte == EOF) return absl::InternalError("python: the interpreter has ended");
    line += static_cast<char>(byte);
  }
  return line;
}

}  // namespace specd::bench
