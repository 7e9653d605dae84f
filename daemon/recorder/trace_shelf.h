// TraceShelf names the files of a process's trace and bounds the sum and the number of files in its
// folder.
//
// When finished files and open ones are more together than the bounds, the shelf deletes the oldest
// finished ones, at once. The more sessions write, the earlier each of their files is full, so that
// open files alone stay below the bound too. At the start it takes over the finished files that
// earlier processes have left, so restarts leave no more files than one process. The files of
// another process that runs, by the pid in their names, are that process's. A file that is being
// written has a lock (FileWriter::Create) and is never touched. One thread: the writer's.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "daemon/recorder/trace_file.h"
#include "daemon/recorder/trace_options.h"

namespace specd {

class TraceShelf {
 public:
  explicit TraceShelf(const TraceOptions& options) : options_(options) {}

  // Takes over the files of earlier processes, by their names. Call it once, first.
  void Adopt();

  // DIR/specd-<UTC>-<pid>-s<session>-<n>.mcap and .rows; n is unique in this process.
  TraceFile::Paths NextPaths(uint64_t session_id);

  // A file that holds nothing: it is deleted at once.
  static void Remove(const TraceFile::Paths& paths);
  // The file that a session writes has this size, or soon will. Makes room for it.
  void SetOpen(uint64_t session_id, uint64_t size_bytes);
  // The session writes no file any more.
  void CloseOpen(uint64_t session_id);
  // A file that is written no more: it may be deleted.
  void Add(const TraceFile::Paths& paths, uint64_t size_bytes);
  // A file that is larger should be followed by another. The bound shrinks when another session
  // begins a file.
  uint64_t file_bytes_max() const;
  // True if the open files alone are too large. Then those above file_bytes_max have to close.
  bool IsOverfull() const { return open_bytes_ > options_.total_bytes; }
  // The files that were deleted since the last call.
  uint64_t TakeDeleted() { return std::exchange(num_deleted_, 0); }

 private:
  struct Finished {
    TraceFile::Paths paths;
    uint64_t size_bytes = 0;
  };
  void Trim();

  const TraceOptions options_;
  std::deque<Finished> finished_;  // the oldest first, those of earlier processes before
  uint64_t finished_bytes_ = 0;
  std::unordered_map<uint64_t, uint64_t> open_;  // sizes by session
  uint64_t open_bytes_ = 0;
  uint64_t num_deleted_ = 0;
};

}  // namespace specd
