#include "daemon/recorder/trace_shelf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "ipc/base/unique_fd.h"

namespace specd {
namespace {

// Embedded engines of one process may have one directory and the same session numbers.
std::atomic<uint64_t> next_file{1};

constexpr std::string_view kTraceSuffix = ".mcap";
constexpr std::string_view kRowsSuffix = ".rows";

// The process of a name of NextPaths, which has these parts with digits between them, and its
// suffix. Nothing for another name. A number that is no pid reads as 0.
struct OwnName {
  pid_t pid = 0;
  std::string_view suffix;
};
std::optional<OwnName> ReadName(std::string_view name) {
  constexpr std::string_view kParts[] = {"specd-", "T", "Z-", "-s", "-"};
  constexpr size_t kPidPart = 2;
  OwnName own;
  for (size_t i = 0; i < std::size(kParts); ++i) {
    if (!name.starts_with(kParts[i])) return std::nullopt;
    name.remove_prefix(kParts[i].size());
    const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0) return std::nullopt;
    if (i == kPidPart) (void)std::from_chars(name.data(), name.data() + digits, own.pid);
    name.remove_prefix(digits);
  }
  if (name != kTraceSuffix && name != kRowsSuffix) return std::nullopt;
  own.suffix = name;
  return own;
}

// True for another process that runs, which has these files on a shelf of its own. A daemon in a
// container may have the number of the one before.
bool IsOfRunning(pid_t pid) {
  return pid > 0 && pid != getpid() && (kill(pid, 0) == 0 || errno == EPERM);
}

// The size of a file that no process writes, and when it was written last; false otherwise.
bool Look(const std::string& path, struct stat* found) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return fd.valid() && flock(fd.get(), LOCK_SH | LOCK_NB) == 0 && fstat(fd.get(), found) == 0 &&
         S_ISREG(found->st_mode);
}

}  // namespace

void TraceShelf::Adopt() {
  struct Left {
    std::pair<time_t, long> written = {};
    Finished file = {};
    bool is_written = false;  // one of the two
  };
  std::map<std::string, Left> found_files;  // by the name without its suffix
  std::error_code error;
  for (std::filesystem::directory_iterator next(options_.directory, error), end;
       !error && next != end; next.increment(error)) {
    const std::string path = next->path();
    const std::string name = next->path().filename();
    const std::optional<OwnName> own = ReadName(name);
    if (!own.has_value() || IsOfRunning(own->pid)) continue;
    Left& each = found_files[name.substr(0, name.size() - own->suffix.size())];
    struct stat found = {};
    if (!Look(path, &found)) {
      each.is_written = true;
      continue;
    }
    each.written = std::max(each.written, {found.st_mtim.tv_sec, found.st_mtim.tv_nsec});
    each.file.size_bytes += static_cast<uint64_t>(found.st_size);
    (own->suffix == kTraceSuffix ? each.file.paths.trace : each.file.paths.rows) = path;
  }
  std::vector<Left> left;
  for (auto& [stem, each] : found_files) {
    if (!each.is_written) left.push_back(std::move(each));
  }
  std::sort(left.begin(), left.end(),
            [](const Left& a, const Left& b) { return a.written < b.written; });
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
  return {.trace = stem + std::string(kTraceSuffix),
          .rows = has_rows ? stem + std::string(kRowsSuffix) : std::string()};
}

void TraceShelf::Remove(const TraceFile::Paths& paths) {
  // A file that cannot be deleted was moved or deleted by another process. The rows are the larger
  // part, so they go first.
  if (!paths.rows.empty()) (void)unlink(paths.rows.c_str());
  if (!paths.trace.empty()) (void)unlink(paths.trace.c_str());
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
