#include "daemon/recorder/trace_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/nearest_name.h"

namespace specd {
namespace {

constexpr char kField[] = "trace_options";

constexpr std::array<std::pair<std::string_view, TraceTrigger>, 5> kTriggers = {
    {{"bad_row", kTriggerBadRow},
     {"abort", kTriggerAbort},
     {"mismatch", kTriggerMismatch},
     {"signal", kTriggerSignal},
     {"request", kTriggerRequest}}};

constexpr std::array<std::pair<std::string_view, TraceLevel>, 3> kLevels = {
    {{"rounds", TraceLevel::kRounds},
     {"hashes", TraceLevel::kHashes},
     {"rows", TraceLevel::kRows}}};

// A key with one number.
struct NumberKey {
  std::string_view name;
  uint64_t min;
  uint64_t max;
  void (*set)(uint64_t value, TraceOptions* options);
};

constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr uint64_t kMibMax = uint64_t{1} << 24;  // 16 TiB
constexpr uint64_t kFlightMax = 1'000'000;
constexpr uint64_t kFilesMax = 1'000'000;
constexpr uint64_t kEveryMax = 1'000'000'000;

constexpr std::array<NumberKey, 8> kNumbers = {{
    {"every", 1, kEveryMax,
     [](uint64_t value, TraceOptions* o) { o->every = static_cast<uint32_t>(value); }},
    {"flight", 1, kFlightMax,
     [](uint64_t value, TraceOptions* o) { o->flight = static_cast<uint32_t>(value); }},
    {"check", 1, kEveryMax,
     [](uint64_t value, TraceOptions* o) { o->check = static_cast<uint32_t>(value); }},
    {"check_drafts", 1, kEveryMax,
     [](uint64_t value, TraceOptions* o) { o->check_drafts = static_cast<uint32_t>(value); }},
    {"file_mib", 1, kMibMax, [](uint64_t value, TraceOptions* o) { o->file_bytes = value * kMib; }},
    {"total_mib", 1, kMibMax,
     [](uint64_t value, TraceOptions* o) { o->total_bytes = value * kMib; }},
    {"total_files", 1, kFilesMax,
     [](uint64_t value, TraceOptions* o) { o->total_files = static_cast<uint32_t>(value); }},
    {"buffer_mib", 1, 1 << 20,
     [](uint64_t value, TraceOptions* o) { o->buffer_bytes = value * kMib; }},
}};

absl::Status Refuse(std::string_view text) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, kField, fmt::format("{}: {}", kField, text));
}

// "; did you mean every?", or nothing if no name is near.
std::string Suggest(std::string_view given, const std::vector<std::string_view>& names) {
  std::string_view nearest;
  size_t least = given.size() / 2 + 1;
  for (const std::string_view name : names) {
    const bool is_beginning = !given.empty() && name.substr(0, given.size()) == given;
    const size_t distance = is_beginning                       ? 1
                            : given.size() > kNearNameBytesMax ? least
                                                               : EditDistance(given, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest);
}

template <class Pairs>
std::vector<std::string_view> NamesOf(const Pairs& pairs) {
  std::vector<std::string_view> names;
  for (const auto& pair : pairs) names.push_back(pair.first);
  return names;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

absl::Status SetLevel(std::string_view value, TraceOptions* options) {
  for (const auto& [name, level] : kLevels) {
    if (value != name) continue;
    options->level = level;
    return absl::OkStatus();
  }
  return Refuse(fmt::format("level = {} is not rounds, hashes or rows{}", value,
                            Suggest(value, NamesOf(kLevels))));
}

absl::Status SetTriggers(std::string_view value, TraceOptions* options) {
  options->triggers = 0;
  for (const std::string_view part : Split(value, '+')) {
    const auto found = std::find_if(kTriggers.begin(), kTriggers.end(),
                                    [part](const auto& known) { return known.first == part; });
    if (found == kTriggers.end()) {
      return Refuse(
          fmt::format("triggers = {}: \"{}\" is not bad_row, abort, mismatch, signal or "
                      "request, joined by +{}",
                      value, part, Suggest(part, NamesOf(kTriggers))));
    }
    options->triggers |= found->second;
  }
  return absl::OkStatus();
}

absl::Status SetNumberKey(const NumberKey& key, std::string_view value, TraceOptions* options) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(absl::string_view(value.data(), value.size()), &number) ||
      number < key.min || number > key.max) {
    return Refuse(fmt::format("{} = {} is outside {} .. {}", key.name, value, key.min, key.max));
  }
  key.set(number, options);
  return absl::OkStatus();
}

absl::Status SetOne(std::string_view entry, TraceOptions* options) {
  const size_t equals = entry.find('=');
  const std::string_view key = entry.substr(0, equals);
  if (equals == std::string_view::npos) {
    return Refuse(fmt::format("\"{}\" is not of the form key=value", entry));
  }
  const std::string_view value = entry.substr(equals + 1);
  if (key == "level") return SetLevel(value, options);
  if (key == "triggers") return SetTriggers(value, options);
  if (key == "places") {
    options->all_places = value == "all";
    if (value == "all" || value == "read") return absl::OkStatus();
    return Refuse(
        fmt::format("places = {} is not read or all{}", value, Suggest(value, {"read", "all"})));
  }
  if (key == "request") {
    if (value.empty()) return Refuse("request is empty; give the id of a request");
    options->request = value;
    return absl::OkStatus();
  }
  std::vector<std::string_view> names = {"level", "places", "triggers", "request"};
  for (const NumberKey& number : kNumbers) {
    if (key == number.name) return SetNumberKey(number, value, options);
    names.push_back(number.name);
  }
  return Refuse(fmt::format("{} is no key{}; docs/TRACES.md lists them", key, Suggest(key, names)));
}

absl::Status CheckTogether(const TraceOptions& options, bool has_triggers) {
  for (const auto& [name, every] :
       {std::pair("check", options.check), std::pair("check_drafts", options.check_drafts)}) {
    if (every == 0 || options.level == TraceLevel::kRows) continue;
    return Refuse(fmt::format("{} = {} needs the rows of rounds; add level=rows, or leave {} out",
                              name, every, name));
  }
  if (has_triggers && options.flight == 0) {
    return Refuse(
        "triggers are those of a flight recorder; add flight=N, the number of rounds to "
        "keep, or leave triggers out");
  }
  if (options.total_bytes < options.file_bytes) {
    return Refuse(
        fmt::format("total_mib = {} is below file_mib = {}; lower file_mib, or raise "
                    "total_mib",
                    options.total_bytes / kMib, options.file_bytes / kMib));
  }
  // Else a file of the flight recorder might be deleted as soon as it is written.
  if (options.flight > 0 && options.total_bytes < options.buffer_bytes) {
    return Refuse(
        fmt::format("total_mib = {} is below buffer_mib = {}, which a flight recorder may write at "
                    "once; lower buffer_mib, or raise total_mib",
                    options.total_bytes / kMib, options.buffer_bytes / kMib));
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view TriggerName(TraceTrigger trigger) {
  for (const auto& [name, known] : kTriggers) {
    if (known == trigger) return name;
  }
  return "unknown";
}

absl::StatusOr<TraceOptions> ParseTraceOptions(std::string_view directory,
                                               std::string_view options) {
  TraceOptions parsed;
  parsed.directory = directory;
  parsed.text = options;
  if (directory.empty() && !options.empty()) {
    return Refuse(
        fmt::format("{} has no effect without a directory; give one with trace", options));
  }
  if (options.empty()) return parsed;
  std::vector<std::string_view> seen;
  for (const std::string_view entry : Split(options, ',')) {
    const std::string_view key = entry.substr(0, entry.find('='));
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
      return Refuse(fmt::format("{} is given twice", key));
    }
    seen.push_back(key);
    if (absl::Status status = SetOne(entry, &parsed); !status.ok()) return status;
  }
  const bool has_triggers = std::find(seen.begin(), seen.end(), "triggers") != seen.end();
  if (absl::Status status = CheckTogether(parsed, has_triggers); !status.ok()) return status;
  return parsed;
}

}  // namespace specd
