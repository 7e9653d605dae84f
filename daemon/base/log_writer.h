// LogWriter writes lines to a descriptor on a thread of its own.
//
// The thread that logs never waits for the descriptor. If the reader of a pipe is slow, lines are
// dropped and counted; once the pipe has room again, a line says how many. A closed pipe drops
// every line. Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "absl/time/time.h"

namespace specd {

class LogWriter {
 public:
  static constexpr size_t kLinesMax = 1024;  // that wait for the descriptor
  // A pipe that poll calls writable takes so many bytes at once (PIPE_BUF), so a write of a line
  // does not wait.
  static constexpr size_t kLineBytesMax = 4096;

  // `dropped` makes the line that tells of dropped lines. The descriptor stays open meanwhile.
  LogWriter(int fd, std::function<std::string(uint64_t num_lines)> dropped);
  // Waits up to kPatience for all lines that are left, beside the line that is being written.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // The line ends with a line feed. A longer line is cut.
  void Write(std::string_view line);
  // Waits until every line before was written or dropped.
  void Flush();

  uint64_t num_dropped() const;

 private:
  static constexpr absl::Duration kPatience = absl::Milliseconds(200);  // for a line

  void Run();
  // False if the descriptor took nothing in the time.
  bool WriteNow(std::string_view line, absl::Duration patience) const;

  const int fd_;
  const std::function<std::string(uint64_t)> dropped_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  bool is_writing_ = false;                  // the thread has a line in hand
  absl::Time end_ = absl::InfiniteFuture();  // of the last lines, once the writer stops
  uint64_t num_dropped_ = 0;
  uint64_t num_told_ = 0;  // of the dropped ones
  std::thread thread_;
};

}  // namespace specd
