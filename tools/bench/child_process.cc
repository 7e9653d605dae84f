#include "tools/bench/child_process.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "ipc/sockets/unix_socket.h"
#include "tools/bench/embedded_files.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

absl::Status Ended() { return absl::InternalError("python: the interpreter has ended"); }

}  // namespace

absl::StatusOr<std::unique_ptr<TemporaryFolder>> TemporaryFolder::Make() {
  std::string path = std::filesystem::temp_directory_path() / "specd-bench-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::InvalidArgumentError(path + " cannot be made: set TMPDIR to a writable directory");
  }
  return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(std::move(path)));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<std::string> TemporaryFolder::Write(std::string_view name,
                                                   std::string_view text) const {
  std::string path = path_ + "/" + std::string(name);
  if (!(std::ofstream(path) << text).flush()) return Broken(path + " cannot be written");
  return path;
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
  if (pid > 0) {
    OwnProcesses().push_back(pid);
    return std::unique_ptr<ChildProcess>(new ChildProcess(pid));
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) {
    if (options.socket >= 0) dup2(options.socket, fd);
  }
  if (options.cpu < 0 || sched_setaffinity(0, sizeof(cpus), &cpus) == 0) {
    execvp(words[0], const_cast<char* const*>(words.data()));
  }
  _exit(127);
}

ChildProcess::~ChildProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  std::erase(OwnProcesses(), pid_);
}

bool ChildProcess::HasEnded() const {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

absl::StatusOr<double> DaemonProcess::Start() {
  constexpr std::chrono::seconds kPatience(20);
  if (folder_ == nullptr) {
    SPECD_TAKE(folder_, TemporaryFolder::Make());
  }
  const SteadyClock::time_point begin = SteadyClock::now();
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::string> words = {program / "specd", "--listen=" + uri(), "--detokenizer=off",
                                    "--threads=1", "--log_level=off"};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  SPECD_TAKE(process_, ChildProcess::Start({.words = std::move(words), .cpu = cpu_}));
  // The socket file is there before the daemon listens.
  while (!UnixConnection::Connect(path(), absl::ZeroDuration()).ok()) {
    if (process_->HasEnded() || SteadyClock::now() - begin > kPatience) {
      return Broken((program / "specd").string() + " does not serve");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return MicrosSince(begin) / 1e3;
}

absl::StatusOr<std::unique_ptr<PythonProcess>> PythonProcess::Start(const Options& options) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Broken("no socket to the interpreter");
  }
  const UniqueFd its_end(ends[1]);
  std::unique_ptr<PythonProcess> made(new PythonProcess(UniqueFd(ends[0])));
  std::vector<std::string> words = {options.interpreter, "-c", EmbeddedText(options.script)};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  SPECD_TAKE(made->process_,
             ChildProcess::Start({.words = std::move(words), .socket = its_end.get()}));
  return made;
}

absl::StatusOr<std::string> PythonProcess::Ask(std::string line) {
  line += '\n';
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t size = send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (size <= 0) return Ended();
    sent += static_cast<size_t>(size);
  }
  return ReadLine();
}

absl::StatusOr<std::string> PythonProcess::ReadLine() {
  size_t end = 0;
  while ((end = received_.find('\n', end)) == std::string::npos) {
    end = received_.size();
    char bytes[4096];
    const ssize_t size = recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (size <= 0) return Ended();
    received_.append(bytes, static_cast<size_t>(size));
  }
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

absl::StatusOr<Times> PythonProcess::AskTimes(std::string line, size_t count) {
  SPECD_TAKE(const std::string answer, Ask(std::move(line)));
  const std::vector<std::string> words = absl::StrSplit(answer, ' ');
  Times times_us;
  for (const std::string& word : words) {
    if (!absl::SimpleAtod(word, &times_us.emplace_back())) times_us.pop_back();
  }
  if (times_us.size() == count && words.size() == count) return times_us;
  return absl::InternalError(
      fmt::format("python: the interpreter said \"{}\"", answer.substr(0, 200)));
}

}  // namespace specd::bench
