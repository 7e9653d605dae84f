#include "daemon/base/log_writer.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/time/clock.h"

namespace specd {

LogWriter::LogWriter(int fd, std::function<std::string(uint64_t)> dropped)
    : fd_(fd), dropped_(std::move(dropped)) {
  // Signals are for the thread that made the writer, which may block them only later.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  {
    const std::lock_guard lock(mutex_);
    end_ = absl::Now() + kPatience;
  }
  changed_.notify_all();
  thread_.join();
}

void LogWriter::Write(std::string_view line) {
  std::string copy(line.substr(0, kLineBytesMax));
  if (line.size() > kLineBytesMax) copy.back() = '\n';
  {
    const std::lock_guard lock(mutex_);
    if (lines_.size() == kLinesMax) {
      ++num_dropped_;
      return;
    }
    lines_.push_back(std::move(copy));
  }
  changed_.notify_all();
}

void LogWriter::Flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return lines_.empty() && !is_writing_; });
}

uint64_t LogWriter::num_dropped() const {
  const std::lock_guard lock(mutex_);
  return num_dropped_;
}

void LogWriter::Run() {
  bool is_stuck = false;  // the last line found no room
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return end_ != absl::InfiniteFuture() || !lines_.empty(); });
    if (lines_.empty()) return;
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    const uint64_t untold = num_dropped_ - num_told_;
    is_writing_ = true;
    // Only the first line of a full pipe is waited for. The lines behind it would wait in vain.
    const absl::Duration left = std::max(end_ - absl::Now(), absl::ZeroDuration());
    const absl::Duration patience = is_stuck ? absl::ZeroDuration() : std::min(kPatience, left);
    lock.unlock();
    const bool is_told = untold > 0 && WriteNow(dropped_(untold), patience);
    const bool is_written = (untold == 0 || is_told) && WriteNow(line, patience);
    is_stuck = !is_written;
    lock.lock();
    if (is_told) num_told_ += untold;
    if (!is_written) ++num_dropped_;
    is_writing_ = false;
    changed_.notify_all();
  }
}

bool LogWriter::WriteNow(std::string_view line, absl::Duration patience) const {
  while (!line.empty()) {
    pollfd polled = {fd_, POLLOUT, 0};
    const int ready = poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || (polled.revents & POLLOUT) == 0) return false;
    const ssize_t written = write(fd_, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    line.remove_prefix(written);
  }
  return true;
}

}  // namespace specd
