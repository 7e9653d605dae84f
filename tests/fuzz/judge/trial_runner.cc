#include "tests/fuzz/judge/trial_runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/core/check.h"
#include "tests/support/grid_size.h"

namespace specd::grammar {
namespace {

// A trial that neither ends nor computes hangs. Other processes may slow a trial down.
constexpr time_t kHangS = 120;
// Address space that is not memory: the stack of a thread that compiles a long text, twice.
constexpr int64_t kStackBytes = int64_t{160} << 20;
constexpr int64_t kKeptBytesMax = int64_t{64} << 20;
constexpr size_t kDetailBytesMax = 3000;  // a line is written in one piece

// The default action of SIGPROF and SIGALRM ends the process.
void SetTimers(double cpu_s) {
  const auto whole = static_cast<time_t>(cpu_s);
  const itimerval cpu = {.it_interval = {},
                         .it_value = {.tv_sec = whole,
                                      .tv_usec = static_cast<suseconds_t>(
                                          1e6 * (cpu_s - static_cast<double>(whole)))}};
  const itimerval wall = {.it_interval = {}, .it_value = {.tv_sec = kHangS, .tv_usec = 0}};
  SPECD_CHECK(setitimer(ITIMER_PROF, &cpu, nullptr) == 0);
  SPECD_CHECK(setitimer(ITIMER_REAL, &wall, nullptr) == 0);
}

int64_t AddressSpaceBytes() {
  int64_t pages = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  SPECD_CHECK(file != nullptr && std::fscanf(file, "%ld", &pages) == 1);
  std::fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

void LimitChild(int64_t memory_bytes) {
  const rlimit no_core = {.rlim_cur = 0, .rlim_max = 0};
  SPECD_CHECK(setrlimit(RLIMIT_CORE, &no_core) == 0);
  // Threads of a compile would each have an arena of their own.
  mallopt(M_ARENA_MAX, 1);
  // A sanitizer's shadow takes terabytes of address space.
  if (memory_bytes == 0 || kIsSanitized) return;
  const auto limit = static_cast<rlim_t>(AddressSpaceBytes() + memory_bytes + kStackBytes);
  const rlimit address_space = {.rlim_cur = limit, .rlim_max = limit};
  SPECD_CHECK(setrlimit(RLIMIT_AS, &address_space) == 0);
}

void WriteLine(int pipe, const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(pipe, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) _exit(0);  // the parent is gone
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

std::string LineOf(const TrialResult& result) {
  std::string detail = result.detail.substr(0, kDetailBytesMax);
  std::replace(detail.begin(), detail.end(), '\n', ' ');
  std::replace(detail.begin(), detail.end(), '\t', ' ');
  return fmt::format("{}\t{:.3f}\t{:.3f}\t{}\t{}\n", static_cast<int>(result.outcome),
                     result.cpu_ms, result.first_mask_ms, result.peak_bytes, detail);
}

std::string DescribeDeath(int status, bool is_open) {
  const std::string how = WIFSIGNALED(status) ? fmt::format("signal {} ({})", WTERMSIG(status),
                                                            strsignal(WTERMSIG(status)))
                                              : fmt::format("exit code {}", WEXITSTATUS(status));
  return fmt::format("{} {}", how, is_open ? "after the opening" : "in the opening");
}

}  // namespace

void TrialRunner::Run(uint64_t num_trials, const Work& work, const Sink& sink) {
  for (uint64_t begin = 0; begin < num_trials; begin += options_.batch) {
    ranges_.push_back({begin, std::min(num_trials, begin + options_.batch)});
  }
  while (!ranges_.empty() || !children_.empty()) {
    while (!ranges_.empty() && children_.size() < static_cast<size_t>(options_.num_jobs)) {
      const Range range = ranges_.front();
      ranges_.pop_front();
      Start(range, work);
    }
    std::vector<pollfd> polls;
    for (const Child& child : children_) polls.push_back({child.pipe, POLLIN, 0});
    if (poll(polls.data(), polls.size(), -1) < 0 && errno != EINTR) SPECD_CHECK(false);
    for (size_t i = children_.size(); i-- > 0;) {
      if (polls[i].revents != 0 && !Read(&children_[i], sink)) return KillAll();
    }
    std::erase_if(children_, [](const Child& child) { return child.pid == 0; });
  }
}

void TrialRunner::Start(const Range& range, const Work& work) {
  int ends[2] = {};
  SPECD_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  std::fflush(nullptr);
  const pid_t pid = fork();
  SPECD_CHECK(pid >= 0);
  if (pid == 0) {
    close(ends[0]);
    RunChild(range, work, ends[1]);
  }
  close(ends[1]);
  children_.push_back({.pid = pid, .pipe = ends[0], .range = range});
}

void TrialRunner::RunChild(const Range& range, const Work& work, int pipe) const {
  signal(SIGPIPE, SIG_IGN);
  if (options_.is_quiet) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDERR_FILENO);
  }
  LimitChild(options_.memory_bytes);
  for (uint64_t index = range.begin; index < range.end; ++index) {
    SetTimers(options_.cpu_s);
    const TrialResult result = work(index, [&] {
      WriteLine(pipe, "open\n");
      SetTimers(options_.cpu_s);
    });
    WriteLine(pipe, LineOf(result));
    // The allocator may keep memory, which would count against the next trial.
    if (IsFinding(result.outcome) || result.peak_bytes > kKeptBytesMax) {
      WriteLine(pipe, "next\n");
      break;
    }
  }
  // Neither destructors nor a search for leaks: the parent shares what is left.
  _exit(0);
}

bool TrialRunner::Read(Child* child, const Sink& sink) {
  char bytes[1 << 16];
  const ssize_t size = read(child->pipe, bytes, sizeof(bytes));
  if (size < 0) return true;
  if (size == 0) return Bury(child, sink);
  child->received.append(bytes, static_cast<size_t>(size));
  size_t begin = 0;
  for (size_t end; (end = child->received.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string_view line = std::string_view(child->received).substr(begin, end - begin);
    if (!TakeLine(child, line, sink)) return false;
  }
  child->received.erase(0, begin);
  return true;
}

bool TrialRunner::TakeLine(Child* child, std::string_view line, const Sink& sink) {
  if (line == "open") {
    child->is_open = true;
    return true;
  }
  if (line == "next") {
    if (child->range.begin < child->range.end) ranges_.push_front(child->range);
    child->range.begin = child->range.end;
    return true;
  }
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(line.data(), line.size()), absl::MaxSplits('\t', 4));
  int outcome = 0;
  TrialResult result;
  SPECD_CHECK(fields.size() == 5 && absl::SimpleAtoi(fields[0], &outcome) &&
              absl::SimpleAtod(fields[1], &result.cpu_ms) &&
              absl::SimpleAtod(fields[2], &result.first_mask_ms) &&
              absl::SimpleAtoi(fields[3], &result.peak_bytes));
  result.outcome = static_cast<Outcome>(outcome);
  result.detail = fields[4];
  const bool is_memory_judged = options_.memory_bytes > 0 && !kIsSanitized;
  if (!IsFinding(result.outcome) && is_memory_judged && result.peak_bytes > options_.memory_bytes) {
    result.detail = fmt::format("a peak of {} MiB; {}", result.peak_bytes >> 20, result.detail);
    result.outcome = Outcome::kMemory;
  }
  child->is_open = false;
  return sink(child->range.begin++, result);
}

bool TrialRunner::Bury(Child* child, const Sink& sink) {
  close(child->pipe);
  int status = 0;
  while (waitpid(child->pid, &status, 0) < 0) SPECD_CHECK(errno == EINTR);
  child->pid = 0;
  if (child->range.begin == child->range.end) return true;
  const bool is_time =
      WIFSIGNALED(status) && (WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGALRM);
  TrialResult result = {.outcome = is_time ? Outcome::kTime : Outcome::kCrash,
                        .detail = DescribeDeath(status, child->is_open),
                        .cpu_ms = is_time ? 1e3 * options_.cpu_s : 0};
  const uint64_t index = child->range.begin;
  if (index + 1 < child->range.end) ranges_.push_front({index + 1, child->range.end});
  return sink(index, result);
}

void TrialRunner::KillAll() {
  for (const Child& child : children_) {
    if (child.pid == 0) continue;
    kill(child.pid, SIGKILL);
    close(child.pipe);
    while (waitpid(child.pid, nullptr, 0) < 0) SPECD_CHECK(errno == EINTR);
  }
  children_.clear();
  ranges_.clear();
}

}  // namespace specd::grammar
