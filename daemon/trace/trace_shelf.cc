#include "daemon/trace/trace_shelf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "ipc/base/unique_fd.h"

namespace specd {
namespace {

// Embedded engines of one process may have one directory and the same session numbers.
std::atomic<uint64_t> next_file{1};

constexpr std::string_view kSuffix = ".mcap";

// True for a name of NextPaths: these parts, with digits between them.
bool IsOwnName(std::string_view name) {
  constexpr std::string_view kParts[] = {"specd-", "T", "Z-", "-s", "-", kSuffix};
  for (size_t i = 0; i < std::size(kParts); ++i) {
    if (!name.starts_with(kParts[i])) return false;
    name.remove_prefix(kParts[i].size());
    if (i + 1 == std::size(kParts)) break;
    const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0) return false;
    name.remove_prefix(digits);
  }
  return name.empty();
}

// The size of a file that no process writes, and when it was written last; false otherwise.
bool Look(const std::string& path, struct stat* found) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && fstat(fd.get(), found) == 0 &&
         S_ISREG(found->st_mode);
}

}  // namespace

void TraceShelf::Adopt() {
  struct Left {
    timespec written = {};
    Finished file = {};
  };
  std::vector<Left> left;
  std::error_code error;
  for (std::filesystem::directory_iterator next(options_.directory, error), end;
       !error && next != end; next.increment(error)) {
    const std::string path = next->path();
    struct stat found = {};
    if (!IsOwnName(next->path().filename().native()) || !Look(path, &found)) continue;
    Left& each = left.emplace_back();
    each.written = found.st_mtim;
    each.file = {.paths = {.trace = path, .rows = {}},
                 .size_bytes = static_cast<uint64_t>(found.st_size)};
    const std::string rows = path.substr(0, path.size() - kSuffix.size()) + ".rows";
    if (stat(rows.c_str(), &found) != 0) continue;
    each.file.paths.rows = rows;
    each.file.size_bytes += static_cast<uint64_t>(found.st_size);
  }
  std::sort(left.begin(), left.end(), [](const Left& a, const Left& b) {
    return std::pair(a.written.tv_sec, a.written.tv_nsec) <
           std::pair(b.written.tv_sec, b.written.tv_nsec);
  });
  for (Left& each : left) Add(each.file.paths, each.file.size_bytes);
}

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
