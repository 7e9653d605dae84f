#include "daemon/trace/trace_shelf.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>

namespace specd {
namespace {

// Embedded engines of one process may have one directory and the same session numbers.
std::atomic<uint64_t> next_file{1};

}  // namespace

TraceFile::Paths TraceShelf::NextPaths(uint64_t session_id) {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char time_text[32];
  std::strftime(time_text, sizeof(time_text), "%Y%m%dT%H%M%SZ", &utc);
  const std::string stem =
      fmt::format("{}/specd-{}-{}-s{}-{}", options_.directory, time_text, getpid(), session_id,
                  next_file.fetch_add(1, std::memory_order_relaxed));
  const bool has_rows = options_.level == TraceLevel::kRows;
  return {.trace = stem + ".mcap", .rows = has_rows ? stem + ".rows" : std::string()};
}

void TraceShelf::Remove(const TraceFile::Paths& paths) {
  // A file that cannot be deleted was moved or deleted by another process.
  (void)unlink(paths.trace.c_str());
  if (!paths.rows.empty()) (void)unlink(paths.rows.c_str());
}

void TraceShelf::Add(const TraceFile::Paths& paths, uint64_t size_bytes) {
  finished_.push_back({paths, size_bytes});
  finished_bytes_ += size_bytes;
  Trim();
}

void TraceShelf::SetOpen(uint64_t session_id, uint64_t size_bytes) {
  uint64_t& counted = open_[session_id];
  open_bytes_ += size_bytes - counted;
  counted = size_bytes;
  Trim();
}

void TraceShelf::CloseOpen(uint64_t session_id) {
  const auto found = open_.find(session_id);
  if (found == open_.end()) return;
  open_bytes_ -= found->second;
  open_.erase(found);
}

// One part is for files that are finished.
uint64_t TraceShelf::file_bytes_max() const {
  return std::min<uint64_t>(options_.file_bytes, options_.total_bytes / (open_.size() + 1));
}

void TraceShelf::Trim() {
  while (!finished_.empty() && (finished_bytes_ + open_bytes_ > options_.total_bytes ||
                                finished_.size() + open_.size() > options_.total_files)) {
    const Finished& oldest = finished_.front();
    Remove(oldest.paths);
    finished_bytes_ -= oldest.size_bytes;
    finished_.pop_front();
    ++num_deleted_;
  }
}

}  // namespace specd
