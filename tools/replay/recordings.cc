#include "tools/replay/recordings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tools/replay/names.h"
#include "tools/replay/record_hash.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {
namespace {

// "specd-<UTC>-<pid>-s<session>-<n>.mcap", as TraceShelf names files.
struct FileName {
  std::string utc;
  std::string pid;  // empty: another name
  std::string session;
  uint64_t number = 0;
};

FileName ParseName(const std::string& path) {
  const std::vector<std::string> parts =
      absl::StrSplit(std::filesystem::path(path).stem().string(), '-');
  FileName name;
  if (parts.size() != 5 || parts[0] != "specd" || !parts[3].starts_with('s')) return name;
  if (!absl::SimpleAtoi(parts[4], &name.number)) return {};
  name.utc = parts[1];
  name.pid = parts[2];
  name.session = parts[3];
  return name;
}

// The beginning of a file, up to its first round.
struct Beginning {
  std::string path;
  FileName name;
  std::optional<TraceInfo> info;  // nothing: the file is torn in its first record
  std::string trigger;
  uint64_t first_round = 0;
  uint64_t first_hash = 0;                      // of that round, without the places of its rows
  std::map<SequenceHandle, int64_t> opened_ns;  // the sequences before that round
};

uint64_t HashOf(const TraceRound& round) {
  return Hash().Value(round.times).List(round.answers).List(round.tasks).value();
}

absl::StatusOr<Beginning> Begin(const std::string& path) {
  Beginning beginning;
  beginning.path = path;
  beginning.name = ParseName(path);
  TraceReader reader({path});
  TraceItem item;
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(&item);
    if (!more.ok()) return more.status();
    if (!*more) return beginning;
    if (const auto* info = std::get_if<TraceInfo>(&item.record)) {
      beginning.info = *info;
      beginning.trigger = reader.Trigger();
    }
    if (const auto* opening = std::get_if<TraceOpening>(&item.record)) {
      beginning.opened_ns[opening->sequence] = opening->time_ns;
    }
    const auto* const round = std::get_if<TraceRound>(&item.record);
    if (round == nullptr) continue;
    beginning.first_round = round->number;
    beginning.first_hash = HashOf(*round);
    return beginning;
  }
}

// A recording that grows by the files that go on with it.
class Growing {
 public:
  explicit Growing(const Beginning& first) : first_(first) { Add(first); }

  bool Takes(const Beginning& next) const {
    const TraceInfo& a = *first_.info;
    const TraceInfo& b = *next.info;
    if (std::tie(first_.name.pid, a.session, a.vocab_size, a.build, a.anonymised) !=
        std::tie(next.name.pid, b.session, b.vocab_size, b.build, b.anonymised)) {
      return false;
    }
    if (!next.name.pid.empty() && next.name.number <= last_number_) return false;
    for (const auto& [sequence, time_ns] : next.opened_ns) {
      const auto known = opened_ns_.find(sequence);
      if (known != opened_ns_.end() && known->second != time_ns) return false;
    }
    if (next.first_round == 0 || first_round_ == 0) return true;
    return next.first_round > first_round_ ||
           (next.first_round == first_round_ && next.first_hash == first_hash_);
  }

  void Add(const Beginning& next) {
    recording_.files.push_back(next.path);
    if (!next.trigger.empty()) recording_.triggers.push_back(next.trigger);
    last_number_ = next.name.number;
    opened_ns_.insert(next.opened_ns.begin(), next.opened_ns.end());
    if (next.first_round == 0) return;
    first_round_ = next.first_round;
    first_hash_ = next.first_hash;
    if (recording_.first_round == 0) recording_.first_round = next.first_round;
  }

  Recording Finish(size_t number) && {
    recording_.number = number;
    recording_.process = first_.name.pid;
    recording_.session = first_.info->session;
    recording_.start_unix_ns = first_.info->start_unix_ns;
    return std::move(recording_);
  }

 private:
  Beginning first_;
  Recording recording_;
  uint64_t last_number_ = 0;
  uint64_t first_round_ = 0;  // of the last file with rounds
  uint64_t first_hash_ = 0;
  std::map<SequenceHandle, int64_t> opened_ns_;
};

absl::StatusOr<std::vector<Recording>> Group(const std::vector<std::string>& files) {
  std::vector<Beginning> beginnings;
  for (const std::string& path : files) {
    absl::StatusOr<Beginning> beginning = Begin(path);
    if (!beginning.ok()) return beginning.status();
    beginnings.push_back(*std::move(beginning));
  }
  // Names that no recorder gave keep their order, before the others.
  std::stable_sort(beginnings.begin(), beginnings.end(), [](const auto& a, const auto& b) {
    return std::tie(a.name.utc, a.name.number) < std::tie(b.name.utc, b.name.number);
  });
  std::vector<Growing> growing;
  std::vector<std::string> torn;
  for (const Beginning& beginning : beginnings) {
    if (!beginning.info) {
      torn.push_back(beginning.path);
      continue;
    }
    const auto found = std::find_if(growing.rbegin(), growing.rend(),
                                    [&](const Growing& one) { return one.Takes(beginning); });
    if (found != growing.rend()) {
      found->Add(beginning);
    } else {
      growing.emplace_back(beginning);
    }
  }
  std::vector<Recording> recordings;
  for (Growing& one : growing) {
    recordings.push_back(std::move(one).Finish(recordings.size() + 1));
  }
  // Nobody knows whose files they are. Their reader warns of each.
  if (recordings.empty()) recordings.push_back({.number = 1});
  for (std::string& path : torn) recordings.back().files.push_back(std::move(path));
  return recordings;
}

}  // namespace

std::string NameOf(const Recording& recording) {
  return fmt::format("recording {} (session {}{}, from {})", recording.number, recording.session,
                     recording.process.empty() ? "" : " of process " + recording.process,
                     TimeText(recording.start_unix_ns));
}

std::string RecordingTable(const std::vector<Recording>& recordings) {
  std::string text =
      fmt::format("{:>9}  {:>8}  {:>7}  {:<24}  {:>5}  {:>11}  {}\n", "recording", "process",
                  "session", "started", "files", "first round", "triggers");
  for (const Recording& one : recordings) {
    const std::string triggers =
        one.triggers.empty() ? "-" : SafeText(fmt::format("{}", fmt::join(one.triggers, ", ")));
    text += fmt::format("{:>9}  {:>8}  {:>7}  {:<24}  {:>5}  {:>11}  {}\n", one.number,
                        one.process.empty() ? "?" : SafeText(one.process), one.session,
                        TimeText(one.start_unix_ns), one.files.size(), one.first_round, triggers);
  }
  return text;
}

absl::Status TooMany(const std::vector<Recording>& recordings) {
  std::string text;
  for (const Recording& one : recordings) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", NameOf(one));
  }
  return absl::InvalidArgumentError(
      fmt::format("there are {} recordings, and the command reads one: {}; choose with "
                  "--recording=N or --session=S (\"specd-replay info\" lists them)",
                  recordings.size(), text));
}

absl::StatusOr<std::vector<Recording>> FindRecordings(const std::vector<std::string>& paths,
                                                      const RecordingChoice& choice) {
  absl::StatusOr<std::vector<std::string>> files = TraceFilesOf(paths);
  if (!files.ok()) return files.status();
  const bool is_chosen = choice.session.has_value() || choice.number.has_value();
  if (files->size() == 1 && !is_chosen) {
    return std::vector<Recording>{{.number = 1, .files = *std::move(files)}};
  }
  absl::StatusOr<std::vector<Recording>> all = Group(*files);
  if (!all.ok()) return all.status();
  std::vector<Recording> chosen = *all;
  std::erase_if(chosen, [&choice](const Recording& one) {
    return (choice.session && one.session != *choice.session) ||
           (choice.number && one.number != *choice.number);
  });
  if (!chosen.empty()) return chosen;
  std::string names;
  for (const Recording& one : *all) {
    names += fmt::format("{}{}", names.empty() ? "" : "; ", NameOf(one));
  }
  return absl::InvalidArgumentError(
      fmt::format("no recording is that of --recording and --session; there are: {}", names));
}

absl::StatusOr<PresentRecording> PresentRecordingOf(const std::string& path) {
  const FileName own = ParseName(path);
  const absl::StatusOr<Beginning> beginning = Begin(path);
  if (!beginning.ok()) return beginning.status();
  const bool is_flight = beginning->info && IsFlight(*beginning->info);
  PresentRecording present = {.files = {path}, .is_growing = !is_flight};
  if (own.pid.empty() || is_flight) return present;
  absl::StatusOr<std::vector<std::string>> files =
      TraceFilesOf({std::filesystem::path(path).parent_path().string()});
  if (!files.ok()) return files.status();
  std::erase_if(*files, [&own](const std::string& file) {
    const FileName name = ParseName(file);
    return name.pid != own.pid || name.session != own.session;
  });
  const absl::StatusOr<std::vector<Recording>> all = Group(*files);
  if (!all.ok()) return all.status();
  for (const Recording& recording : *all) {
    const std::vector<std::string>& mine = recording.files;
    if (std::find(mine.begin(), mine.end(), path) != mine.end()) present.files = mine;
  }
  return present;
}

}  // namespace specd::replay
