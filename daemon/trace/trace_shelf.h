// TraceShelf names the files of a process's trace and bounds their sum.
//
// When finished files and open ones are larger together than the bound, the shelf deletes the
// oldest finished ones. Files of other processes are never touched. One thread: the writer's.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "daemon/trace/trace_file.h"
#include "daemon/trace/trace_options.h"

namespace specd {

class TraceShelf {
 public:
  explicit TraceShelf(const TraceOptions& options) : options_(options) {}

  // DIR/specd-<UTC>-<pid>-s<session>-<n>.mcap and .rows; n is unique in this process.
  TraceFile::Paths NextPaths(uint64_t session_id);

  // A file that holds nothing: it is deleted at once.
  static void Remove(const TraceFile::Paths& paths);
  // A file that is written no more: it may be deleted.
  void Add(const TraceFile::Paths& paths, uint64_t size_bytes);
  // Makes room beside files that are still written. Returns how many files it deleted.
  uint64_t Trim(uint64_t open_bytes);

 private:
  struct Finished {
    TraceFile::Paths paths;
    uint64_t size_bytes = 0;
  };
  const TraceOptions options_;
  std::deque<Finished> finished_;  // the oldest first
  uint64_t finished_bytes_ = 0;
};

}  // namespace specd
