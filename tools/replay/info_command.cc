#include "tools/replay/info_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string>

#include "tools/replay/names.h"
#include "tools/replay/sequence_book.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {
namespace {

class Info {
 public:
  explicit Info(const CommandOptions& options) : reader_(options.paths) {}

  absl::StatusOr<int> Run() {
    TraceItem item;
    for (;;) {
      const absl::StatusOr<bool> more = reader_.Next(&item);
      if (!more.ok()) return more.status();
      if (!*more) break;
      Take(item);
    }
    PrintWarnings(reader_.warnings());
    if (!info_) return absl::InvalidArgumentError("the trace has no whole record");
    Print();
    return kExitOk;
  }

 private:
  void Take(const TraceItem& item) {
    book_.Take(item);
    if (const auto* info = std::get_if<TraceInfo>(&item.record)) {
      if (!info_) info_ = *info;
      row_file_ = info->row_file.empty() ? "" : RowPathOf(reader_.paths()[item.file], *info);
      if (!row_file_.empty()) row_files_.push_back(row_file_);
      if (const std::string cause = reader_.Trigger(); !cause.empty()) ++triggers_[cause];
    }
    if (const auto* drops = std::get_if<TraceDrops>(&item.record)) {
      // Counts begin anew in each file.
      drops_[item.file] = *drops;
    }
    if (const auto* round = std::get_if<TraceRound>(&item.record)) TakeRound(*round);
  }

  void TakeRound(const TraceRound& round) {
    ++num_rounds_;
    ++levels_[static_cast<size_t>(round.level)];
    if (round.no_rows != NoRows::kNone) ++no_rows_[static_cast<size_t>(round.no_rows)];
    if (round.staged) ++num_staged_;
    if (round.on_stream) ++num_on_stream_;
    if (first_number_ == 0) first_number_ = round.number;
    num_missing_ +=
        last_number_ != 0 && round.number > last_number_ + 1 ? round.number - last_number_ - 1 : 0;
    last_number_ = round.number;
    if (first_ns_ == 0) first_ns_ = round.times.taken;
    last_ns_ = std::max(last_ns_, round.times.taken);
    for (const TraceAnswer& answer : round.answers) {
      ++statuses_[static_cast<size_t>(answer.status)];
      kept_ += answer.num_kept;
      accepted_ += answer.num_accepted;
    }
    for (const TraceTask& task : round.tasks) {
      ++methods_[static_cast<size_t>(task.method)];
      if (!HasOutcome(round, task)) continue;
      const uint32_t drawn = book_.NumDrawnOf(task);
      drafted_ += drawn;
      confirmed_ += static_cast<uint64_t>(std::max(task.outcome.num_accepted, 0));
      if (drawn > 0) ++with_draft_;
    }
  }

  static void Line(std::string_view name, const std::string& text) {
    fmt::print("{:<16} {}\n", name, SafeText(text));
  }

  template <class Counts, class E>
  static std::string Tally(const Counts& counts, E) {
    std::string text;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) continue;
      text +=
          fmt::format("{}{} {}", text.empty() ? "" : ", ", counts[i], NameOf(static_cast<E>(i)));
    }
    return text.empty() ? "none" : text;
  }

  void PrintFiles() const {
    for (size_t i = 0; i < reader_.paths().size(); ++i) {
      Line(i == 0 ? "trace" : "",
           fmt::format("{} ({})", reader_.paths()[i], SizeText(reader_.file_size_bytes(i))));
    }
    for (const std::string& path : row_files_) {
      std::error_code error;
      const uintmax_t size = std::filesystem::file_size(path, error);
      Line("rows", error ? fmt::format("{} (missing: {})", path, error.message())
                         : fmt::format("{} ({})", path, SizeText(size)));
    }
  }

  void Print() const {
    PrintFiles();
    Line("recorded by", fmt::format("specd {}{}, records of version {}", info_->specd_version,
                                    info_->build.empty() ? "" : fmt::format(" ({})", info_->build),
                                    info_->version));
    Line("backend", info_->processor.empty()
                        ? info_->backend
                        : fmt::format("{} ({})", info_->backend, info_->processor));
    if (info_->anonymised)
      Line("anonymised", "text and ids are gone; token ids are numbers of a task");
    Line("vocabulary", fmt::format("{} ids{}", info_->vocab_size,
                                   info_->tokenizer.empty() ? "" : ", " + info_->tokenizer));
    if (!info_->options.empty()) Line("options", info_->options);
    Line("session", fmt::format("{}", info_->session));
    std::string triggers;
    for (const auto& [cause, count] : triggers_) {
      triggers += fmt::format("{}{} {}", triggers.empty() ? "" : ", ", count, cause);
    }
    if (!triggers.empty()) Line("triggers", triggers);
    Line("started", TimeText(info_->start_unix_ns));
    if (first_ns_ != 0) Line("lasts", DurationText(last_ns_ - first_ns_));
    Line("rounds", fmt::format("{} (numbers {} to {}; {} between them not recorded)", num_rounds_,
                               first_number_, last_number_, num_missing_));
    Line("levels", Tally(levels_, TraceLevel()));
    for (size_t why = 0; why < no_rows_.size(); ++why) {
      if (no_rows_[why] == 0) continue;
      Line("without rows",
           fmt::format("{} rounds: rows {}", no_rows_[why], NameOf(static_cast<NoRows>(why))));
    }
    if (num_staged_ > 0) Line("staged", fmt::format("{} rounds in a CUDA graph", num_staged_));
    if (num_on_stream_ > 0) Line("on a stream", fmt::format("{} rounds", num_on_stream_));
    PrintSequences();
    Line("methods", Tally(methods_, VerifyMethod()));
    Line("answers", Tally(statuses_, RoundStatus()));
    Line("tokens kept", fmt::format("{}", kept_));
    if (drafted_ > 0) {
      Line("draft tokens",
           fmt::format("{}, of which {} were accepted ({:.3f}), {} of them kept", drafted_,
                       confirmed_, double(confirmed_) / double(drafted_), accepted_));
      Line("accepted/round", fmt::format("{:.3f} of a sequence with a draft",
                                         double(confirmed_) / double(with_draft_)));
    }
    PrintDrops();
  }

  void PrintSequences() const {
    const SequenceBook::Counts counts = book_.Count();
    std::string text = fmt::format("{}", counts.num_sequences);
    uint64_t open = counts.num_sequences;
    for (const auto& [reason, count] : counts.ended) {
      open -= count;
      text +=
          fmt::format(", {} {}", count, reason == FinishReason::kNone ? "closed" : NameOf(reason));
    }
    if (open > 0) text += fmt::format(", {} not ended", open);
    Line("sequences", text);
  }

  void PrintDrops() const {
    uint64_t rounds = 0;
    uint64_t rows = 0;
    std::string why;
    for (const auto& [file, drops] : drops_) {
      rounds += drops.rounds;
      rows += drops.rows;
      why = drops.why;
    }
    Line("dropped", drops_.empty() ? "nothing"
                                   : fmt::format("{} rounds, and the rows of {}; last reason: {}",
                                                 rounds, rows, why));
  }

  TraceReader reader_;
  SequenceBook book_{SequenceBook::Keep::kOpen};
  std::optional<TraceInfo> info_;
  std::string row_file_;
  std::vector<std::string> row_files_;
  std::map<size_t, TraceDrops> drops_;
  std::map<std::string, uint64_t> triggers_;  // of the dumps of a flight recorder
  uint64_t num_rounds_ = 0;
  uint64_t num_staged_ = 0;
  uint64_t num_on_stream_ = 0;
  uint64_t num_missing_ = 0;
  uint64_t first_number_ = 0;
  uint64_t last_number_ = 0;
  int64_t first_ns_ = 0;
  int64_t last_ns_ = 0;
  std::array<uint64_t, 4> levels_ = {};
  std::array<uint64_t, 4> no_rows_ = {};
  std::array<uint64_t, 5> methods_ = {};
  std::array<uint64_t, 7> statuses_ = {};
  uint64_t kept_ = 0;
  uint64_t accepted_ = 0;
  uint64_t drafted_ = 0;
  uint64_t confirmed_ = 0;
  uint64_t with_draft_ = 0;
};

}  // namespace

absl::StatusOr<int> RunInfo(const CommandOptions& options) {
  if (options.recordings.size() <= 1) return Info(options).Run();
  fmt::print("{}\n--recording=N or --session=S chooses one\n", RecordingTable(options.recordings));
  return kExitOk;
}

}  // namespace specd::replay
