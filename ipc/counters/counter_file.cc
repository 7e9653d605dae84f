#include "ipc/counters/counter_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr std::string_view kField = "counters";
constexpr mode_t kMode = 0640;  // the users of the socket's group may read

constexpr uint64_t ToLine(uint64_t bytes) {
  return (bytes + kCounterLineBytes - 1) / kCounterLineBytes * kCounterLineBytes;
}

// The strings of all records, each once, with a zero at its end.
class Strings {
 public:
  uint32_t Add(const std::string& text) {
    const auto [found, is_new] = offsets_.try_emplace(text, static_cast<uint32_t>(bytes_.size()));
    if (is_new) bytes_.append(text.c_str(), text.size() + 1);
    return found->second;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::map<std::string, uint32_t> offsets_;
  std::string bytes_;
};

// The file as it is before the first count.
std::string Image(const CounterPlan& plan) {
  Strings strings;
  std::string records;
  for (const CounterSeries& series : plan.series) {
    const CounterRecord record = {.name = strings.Add(series.name),
                                  .labels = strings.Add(series.labels),
                                  .help = strings.Add(series.help),
                                  .kind = static_cast<uint32_t>(series.kind),
                                  .is_optional = series.is_optional ? 1U : 0U,
                                  .num_values = series.num_values,
                                  .first_value = series.first_value};
    records.append(reinterpret_cast<const char*>(&record), sizeof(record));
  }
  CounterHeader header = {};
  header.magic = kCounterMagic;
  header.version = kCounterVersion;
  header.pid = static_cast<uint32_t>(getpid());
  header.epoch = plan.epoch;
  header.start_unix_ns =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count());
  header.num_records = plan.series.size();
  header.records_offset = sizeof(header);
  header.strings_offset = header.records_offset + records.size();
  header.strings_bytes = strings.bytes().size();
  header.values_offset = ToLine(header.strings_offset + header.strings_bytes);
  header.num_values = plan.num_values;
  header.file_bytes = header.values_offset + plan.num_values * sizeof(uint64_t);
  std::string image(reinterpret_cast<const char*>(&header), sizeof(header));
  image += records + strings.bytes();
  image.resize(header.file_bytes);
  return image;
}

absl::Status Failed(const std::string& path, std::string_view what) {
  return MakeErrnoError(SPECD_ERROR_STATE, kField,
                        fmt::format("counters = {}: cannot {}", path, what), errno);
}

// A lock of the open file: it goes with the process, and readers can ask for it (F_OFD_GETLK).
bool TakeLock(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool StillNamed(int fd, const std::string& path) {
  struct stat opened = {};
  struct stat named = {};
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

// An empty file is what a daemon leaves that died in Create.
bool MayReplace(int fd) {
  struct stat found = {};
  uint64_t magic = 0;
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) return false;
  if (found.st_size == 0) return true;
  return pread(fd, &magic, sizeof(magic), 0) == sizeof(magic) && magic == kCounterMagic;
}

// Locks the file at the path, which a dead daemon left or which is made now.
absl::StatusOr<UniqueFd> LockFormer(const std::string& path) {
  while (true) {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kMode));
    if (!fd.valid()) {
      return Failed(path, "make the file; choose a path where this user may write with --counters");
    }
    if (!MayReplace(fd.get())) {
      return MakeError(SPECD_ERROR_STATE, kField,
                       fmt::format("counters = {} exists and holds no counters of specd; choose "
                                   "another path",
                                   path));
    }
    if (!TakeLock(fd.get())) {
      if (errno != EAGAIN && errno != EACCES) return Failed(path, "lock the file");
      return MakeError(SPECD_ERROR_STATE, kField,
                       fmt::format("another specd serves {}; stop it, or choose other paths with "
                                   "--listen and --counters",
                                   path));
    }
    if (StillNamed(fd.get(), path)) return fd;
  }
}

absl::StatusOr<UniqueFd> MakeFile(const std::string& path, const std::string& image) {
  UniqueFd fd(path.empty() ? memfd_create("specd.counters", MFD_CLOEXEC)
                           : open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (!fd.valid()) return Failed(path, "make the file");
  // Takes the pages now: a store to a page that the file system has no room for would be a SIGBUS.
  if (const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(image.size()))) {
    errno = error;
    return Failed(path, "find room for the file");
  }
  size_t written = 0;
  while (written < image.size()) {
    const ssize_t wrote = pwrite(fd.get(), image.data() + written, image.size() - written,
                                 static_cast<off_t>(written));
    if (wrote < 0 && errno != EINTR) return Failed(path, "write the file");
    if (wrote > 0) written += static_cast<size_t>(wrote);
  }
  if (!TakeLock(fd.get())) return Failed(path, "lock the file");
  return fd;
}

}  // namespace

absl::StatusOr<CounterFile> CounterFile::Create(const std::string& path, const CounterPlan& plan) {
  const std::string image = Image(plan);
  const std::string made_path = path.empty() ? "" : path + ".new";
  UniqueFd former;
  if (!path.empty()) {
    absl::StatusOr<UniqueFd> locked = LockFormer(path);
    if (!locked.ok()) return locked.status();
    former = *std::move(locked);
    unlink(made_path.c_str());  // the lock keeps other processes from making it
  }
  absl::StatusOr<UniqueFd> fd = MakeFile(made_path, image);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<Mapping> mapping = Mapping::Map(fd->get(), image.size(), MapAccess::kReadWrite);
  if (!mapping.ok()) return mapping.status();
  if (!path.empty() && rename(made_path.c_str(), path.c_str()) != 0) {
    return Failed(path, "rename the file to it");
  }
  CounterHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  return CounterFile(path, *std::move(fd), *std::move(mapping), header.values_offset);
}

CounterFile::CounterFile(std::string path, UniqueFd fd, Mapping mapping, uint64_t values_offset)
    : path_(std::move(path)),
      fd_(std::move(fd)),
      mapping_(std::move(mapping)),
      values_(static_cast<char*>(mapping_.data()) + values_offset),
      is_lost_(std::make_unique<std::atomic<bool>>(false)),
      guard_({.data = mapping_.data(), .size_bytes = mapping_.size_bytes(), .is_writable = true},
             is_lost_.get()) {}

CounterFile::~CounterFile() {
  if (fd_.valid() && !path_.empty() && StillNamed(fd_.get(), path_)) unlink(path_.c_str());
}

}  // namespace specd
