#include "tests/gpu/daemon/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/core/check.h"

extern char** environ;

namespace specd {

namespace {

constexpr int kCannotStart = 127;

// A list that ends with null, as exec takes it. The caller owns the texts.
std::vector<char*> PointersTo(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

class Deadline {
 public:
  explicit Deadline(int patience_ms)
      : end_(std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms)) {}
  // Milliseconds until the deadline; 0 after it.
  int LeftMs() const {
    const auto left = end_ - std::chrono::steady_clock::now();
    return static_cast<int>(
        std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(left).count()));
  }

 private:
  const std::chrono::steady_clock::time_point end_;
};

}  // namespace

Child::Child(std::string name, const std::vector<std::string>& command,
             const Environment& environment)
    : name_(std::move(name)) {
  int input[2];
  int output[2];
  SPECD_CHECK(pipe2(input, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0);
  input_.Reset(input[1]);
  output_.Reset(output[0]);
  const UniqueFd their_input(input[0]);
  const UniqueFd their_output(output[1]);
  std::vector<std::string> texts = command;
  // If a name occurs twice, getenv finds the first.
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  const std::vector<char*> arguments = PointersTo(&texts);
  const std::vector<char*> environment_pointers = PointersTo(&variables);
  const pid_t parent = getpid();
  pid_ = fork();
  SPECD_CHECK(pid_ >= 0);
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotStart);  // the parent died before it could be watched
  dup2(their_input.get(), STDIN_FILENO);
  dup2(their_output.get(), STDOUT_FILENO);
  dup2(their_output.get(), STDERR_FILENO);
  execve(arguments[0], arguments.data(), environment_pointers.data());
  dprintf(STDERR_FILENO, "%s cannot be started\n", arguments[0]);
  _exit(kCannotStart);
}

Child::~Child() { Kill(); }

bool Child::Read(int timeout_ms) {
  pollfd output = {output_.get(), POLLIN, 0};
  if (poll(&output, 1, timeout_ms) <= 0) return true;
  char bytes[4096];
  const ssize_t count = read(output_.get(), bytes, sizeof(bytes));
  has_closed_output_ = count <= 0;
  if (has_closed_output_) return false;
  text_.append(bytes, static_cast<size_t>(count));
  return true;
}

bool Child::AwaitText(const std::string& text, int patience_ms) {
  const Deadline deadline(patience_ms);
  while (true) {
    const size_t found = text_.find(text, awaited_);
    if (found != std::string::npos) {
      awaited_ = found + text.size();
      return true;
    }
    const int left_ms = deadline.LeftMs();
    if (left_ms == 0 || !Read(left_ms)) return false;
  }
}

void Child::TakePrinted() {
  for (size_t before = text_.size() + 1; before != text_.size();) {
    before = text_.size();
    Read(0);
  }
}

void Child::SkipPrinted() {
  TakePrinted();
  awaited_ = text_.size();
}

void Child::SendLine() {
  // The child may have ended; then its output says why.
  struct sigaction ignore = {};
  struct sigaction before = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  const ssize_t written = write(input_.get(), "\n", 1);
  (void)written;
  sigaction(SIGPIPE, &before, nullptr);
}

void Child::Signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

int Child::AwaitEnd(int patience_ms) {
  const Deadline deadline(patience_ms);
  int left_ms = deadline.LeftMs();
  while (left_ms > 0 && Read(left_ms)) left_ms = deadline.LeftMs();
  // If the child's output has ended, the child is about to end. If not, the child is late.
  while (pid_ > 0 && IsRunning() && deadline.LeftMs() > 0) Read(1);
  if (pid_ > 0) {
    Kill();
    return -1;
  }
  return status_;
}

bool Child::IsRunning() {
  if (pid_ < 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == 0) return true;
  status_ = status;
  pid_ = -1;
  return false;
}

void Child::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, &status_, 0);
  pid_ = -1;
}

std::string Child::LastLine() const {
  const size_t end = text_.find_last_not_of('\n');
  if (end == std::string::npos) return "no output";
  const size_t before = text_.find_last_of('\n', end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return text_.substr(begin, end + 1 - begin);
}

}  // namespace specd
