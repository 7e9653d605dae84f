#include "ipc/counters/counter_snapshot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/base/unique_fd.h"
#include "ipc/base/valid_text.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

// Longer than any text of the list.
constexpr size_t kTextBytesMax = 512;

absl::Status Bad(const std::string& path, std::string_view what) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "counters",
                   fmt::format("{} is no counters file of specd: {}", path, what));
}

// Room for `size` things of `each` bytes from `offset` on.
bool Fits(uint64_t offset, uint64_t size, uint64_t each, uint64_t end) {
  return offset <= end && size <= (end - offset) / each;
}

bool IsNameByte(char c, bool is_first, bool may_have_colon) {
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return is_letter || (c == ':' && may_have_colon) || (!is_first && c >= '0' && c <= '9');
}

bool IsName(std::string_view text, bool may_have_colon) {
  if (text.empty()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!IsNameByte(text[i], i == 0, may_have_colon)) return false;
  }
  return true;
}

// One line of UTF-8 without control characters.
bool IsLine(std::string_view text) {
  return text.size() <= kTextBytesMax && ValidText(text) == text &&
         std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7f;
         });
}

// The length of a label and its value, name="value", at the beginning of the text; 0: there is
// none.
size_t LabelBytes(std::string_view text) {
  const size_t equals = text.find("=\"");
  if (equals == std::string_view::npos || !IsName(text.substr(0, equals), false)) return 0;
  for (size_t i = equals + 2; i < text.size(); ++i) {
    if (text[i] == '"') return i + 1;
    if (text[i] != '\\') continue;
    ++i;
    if (i == text.size() || (text[i] != '\\' && text[i] != '"' && text[i] != 'n')) return 0;
  }
  return 0;
}

// Each name once; the bounds of a histogram have a label of their own.
bool AreLabels(std::string_view text) {
  std::set<std::string_view> names = {"le"};
  while (!text.empty()) {
    const size_t bytes = LabelBytes(text);
    if (bytes == 0 || !names.insert(text.substr(0, text.find('='))).second) return false;
    text.remove_prefix(bytes);
    if (text.empty()) return true;
    if (text[0] != ',' || text.size() == 1) return false;
    text.remove_prefix(1);
  }
  return true;
}

// A copy of a whole file, and what its header says.
struct Copy {
  std::string path;
  std::string bytes;
  CounterHeader header = {};

  std::string_view Text(uint32_t offset) const {
    // CheckHeader has found a zero behind it, and IsLine refuses what is cut here.
    const char* const text = bytes.data() + header.strings_offset + offset;
    return {text, strnlen(text, kTextBytesMax + 1)};
  }
};

absl::Status CheckHeader(const Copy& copy) {
  const CounterHeader& header = copy.header;
  const uint64_t end = copy.bytes.size();
  if (header.magic != kCounterMagic) return Bad(copy.path, "its first bytes are others");
  if (header.version != kCounterVersion) {
    return Bad(copy.path, fmt::format("version = {}, and this program reads {}; use the specd of "
                                      "one release",
                                      header.version, kCounterVersion));
  }
  if (header.file_bytes != end) {
    return Bad(copy.path,
               fmt::format("it has {} bytes and should have {}", end, header.file_bytes));
  }
  if (!Fits(header.records_offset, header.num_records, sizeof(CounterRecord), end) ||
      !Fits(header.strings_offset, header.strings_bytes, 1, end) ||
      !Fits(header.values_offset, header.num_values, sizeof(uint64_t), end)) {
    return Bad(copy.path, "a part of it lies past its end");
  }
  if (header.strings_bytes == 0 ||
      copy.bytes[header.strings_offset + header.strings_bytes - 1] != '\0') {
    return Bad(copy.path, "its strings have no end");
  }
  return absl::OkStatus();
}

absl::StatusOr<CounterValues> ReadSeries(const Copy& copy, uint64_t index) {
  const CounterHeader& header = copy.header;
  CounterRecord record;
  std::memcpy(&record, copy.bytes.data() + header.records_offset + index * sizeof(record),
              sizeof(record));
  if (std::max({record.name, record.labels, record.help}) >= header.strings_bytes ||
      record.kind > kCounterKindMax) {
    return Bad(copy.path, fmt::format("record {} has a string or a kind outside its range", index));
  }
  CounterValues series = {.name = std::string(copy.Text(record.name)),
                          .labels = std::string(copy.Text(record.labels)),
                          .help = std::string(copy.Text(record.help)),
                          .kind = static_cast<CounterKind>(record.kind),
                          .is_optional = record.is_optional != 0,
                          .values = {}};
  if (!IsName(series.name, true) || !IsLine(series.name) || !IsLine(series.labels) ||
      !AreLabels(series.labels) || !IsLine(series.help)) {
    return Bad(copy.path, fmt::format("record {} has texts that cannot be printed", index));
  }
  const uint32_t wanted = series.kind == CounterKind::kTimes ? kTimesValues : 1;
  if (record.num_values != wanted || record.first_value > header.num_values ||
      wanted > header.num_values - record.first_value) {
    return Bad(copy.path, fmt::format("record {} has values outside its range", index));
  }
  series.values.resize(wanted);
  std::memcpy(series.values.data(),
              copy.bytes.data() + header.values_offset + record.first_value * sizeof(uint64_t),
              wanted * sizeof(uint64_t));
  return series;
}

// The text of an exposition is made of these without a further look.
absl::Status CheckFamilies(const Copy& copy, const std::vector<CounterValues>& all) {
  std::set<std::string_view> families;
  std::set<std::pair<std::string_view, std::string_view>> lines;
  for (size_t i = 0; i < all.size(); ++i) {
    const CounterValues& series = all[i];
    const bool goes_on = i > 0 && all[i - 1].name == series.name;
    if (goes_on && (all[i - 1].kind != series.kind || all[i - 1].help != series.help)) {
      return Bad(copy.path, fmt::format("{} has two kinds or two meanings", series.name));
    }
    if (!lines.emplace(series.name, series.labels).second ||
        (!goes_on && !families.insert(series.name).second)) {
      return Bad(copy.path, fmt::format("{} stands in two places", series.name));
    }
  }
  return absl::OkStatus();
}

// Whether the daemon lives that locked the file. The kernel answers for any process namespace.
bool IsLocked(int fd) {
  struct flock lock = {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  struct stat found = {};
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) return Bad(path, "it is no regular file");
  const uint64_t size = found.st_size;
  if (size < sizeof(CounterHeader) || size > kCounterFileBytesMax) {
    return Bad(path, fmt::format("it has {} bytes, and such a file has {} .. {}", size,
                                 sizeof(CounterHeader), kCounterFileBytesMax));
  }
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Bad(path, "it ends while it is read");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace

uint64_t CounterValues::count() const {
  return std::accumulate(values.begin(), values.begin() + kTimesBounds + 1, uint64_t{0});
}

uint64_t CounterValues::QuantileNs(double share) const {
  const uint64_t all = count();
  if (all == 0) return 0;
  uint64_t seen = 0;
  for (uint32_t i = 0; i < kTimesBounds; ++i) {
    seen += values[i];
    if (static_cast<double>(seen) >= share * static_cast<double>(all)) return TimesBoundNs(i);
  }
  return TimesBoundNs(kTimesBounds);
}

const CounterValues* CounterSnapshot::Find(std::string_view name, std::string_view labels) const {
  const auto found = std::find_if(series.begin(), series.end(), [&](const CounterValues& each) {
    return each.name == name && each.labels == labels;
  });
  return found == series.end() ? nullptr : &*found;
}

uint64_t CounterSnapshot::SumOf(std::string_view name) const {
  uint64_t sum = 0;
  for (const CounterValues& each : series) {
    if (each.name == name) sum += each.value();
  }
  return sum;
}

absl::StatusOr<CounterSnapshot> ReadCounters(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) {
    return MakeErrnoError(errno == ENOENT ? SPECD_ERROR_NOT_FOUND : SPECD_ERROR_PERMISSION,
                          "counters", fmt::format("cannot open {}", path), errno);
  }
  absl::StatusOr<std::string> bytes = ReadAll(fd.get(), path);
  if (!bytes.ok()) return bytes.status();
  Copy copy = {.path = path, .bytes = *std::move(bytes)};
  std::memcpy(&copy.header, copy.bytes.data(), sizeof(copy.header));
  if (absl::Status status = CheckHeader(copy); !status.ok()) return status;
  CounterSnapshot snapshot = {.pid = copy.header.pid,
                              .epoch = copy.header.epoch,
                              .start_unix_ns = copy.header.start_unix_ns,
                              .is_alive = IsLocked(fd.get()),
                              .series = {}};
  for (uint64_t i = 0; i < copy.header.num_records; ++i) {
    absl::StatusOr<CounterValues> series = ReadSeries(copy, i);
    if (!series.ok()) return series.status();
    snapshot.series.push_back(*std::move(series));
  }
  if (absl::Status status = CheckFamilies(copy, snapshot.series); !status.ok()) return status;
  return snapshot;
}

}  // namespace specd
