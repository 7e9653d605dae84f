#include "tools/replay/export_command.h"

#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <limits>
#include <string>
#include <string_view>

#include "tools/replay/npz_writer.h"
#include "tools/replay/output_file.h"
#include "tools/replay/place_view.h"
#include "tools/replay/row_columns.h"
#include "tools/replay/task_rules.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {
namespace {

constexpr size_t kRequestSize = 128;

// The dtype of numpy for a C++ type.
template <class T>
constexpr std::string_view kNumpyType = "";
template <>
constexpr std::string_view kNumpyType<uint64_t> = "<u8";
template <>
constexpr std::string_view kNumpyType<int64_t> = "<i8";
template <>
constexpr std::string_view kNumpyType<uint32_t> = "<u4";
template <>
constexpr std::string_view kNumpyType<int32_t> = "<i4";
template <>
constexpr std::string_view kNumpyType<uint8_t> = "|u1";
template <>
constexpr std::string_view kNumpyType<double> = "<f8";
template <>
constexpr std::string_view kNumpyType<float> = "<f4";

// Columns of one length. A column is made by its first value.
class ColumnTable {
 public:
  explicit ColumnTable(std::string prefix) : prefix_(std::move(prefix)) {}

  template <class T>
  void Add(std::string_view name, T value) {
    At(name, kNumpyType<T>).values.Add(value);
  }
  void AddText(std::string_view name, std::string text) {
    text.resize(kRequestSize, '\0');
    At(name, "|S128").values.Append(text);
  }
  void EndLine() {
    ++count_;
    next_ = 0;
  }

  absl::Status Write(NpzWriter* npz) {
    for (Column& column : columns_) {
      absl::Status status = npz->Add({.name = column.name,
                                      .dtype = column.dtype,
                                      .shape = {count_},
                                      .values = &column.values});
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  struct Column {
    std::string name;
    std::string_view dtype;
    ColumnFile values;
  };
  // Every line adds the same columns in the same order.
  Column& At(std::string_view name, std::string_view dtype) {
    if (next_ == columns_.size()) {
      columns_.push_back({prefix_ + std::string(name), dtype, ColumnFile()});
    }
    return columns_[next_++];
  }

  std::string prefix_;
  std::deque<Column> columns_;
  size_t next_ = 0;
  uint64_t count_ = 0;
};

std::string_view RowType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "<f4";
    case DType::kFloat16:
      return "<f2";
    case DType::kBFloat16:
      break;
  }
  return "<u2";  // numpy has no bfloat16: the bits
}

class NpzExporter {
 public:
  explicit NpzExporter(bool with_rows) : with_rows_(with_rows) {}

  absl::Status Take(const ExportedRound& exported) {
    const TraceRound& round = exported.round;
    const int32_t vocab_size = exported.info.vocab_size;
    if (with_rows_) {
      if (absl::Status status = rows_.Take(exported); !status.ok()) return status;
    }
    TakeTimes(round);
    for (const TraceAnswer& answer : round.answers) {
      if (Takes(exported, answer.sequence)) TakeAnswer(round, answer);
    }
    for (const TraceTask& task : round.tasks) {
      const TraceAnswer* const answer = AnswerOf(round, task);
      if (answer == nullptr || !Takes(exported, answer->sequence)) continue;
      if (!CheckTask(round, task, vocab_size).ok()) continue;
      for (int32_t i = 0; i < NumPlaces(task); ++i) {
        TakePlace(round, *answer, ViewPlace(exported.info, task, i));
      }
    }
    return absl::OkStatus();
  }

  uint64_t num_answers() const { return num_answers_; }

  absl::Status Finish(const SequenceBook& book, OutputFile* out) {
    for (const SequenceEntry& entry : book.entries()) TakeOpening(entry);
    NpzWriter npz(out);
    for (ColumnTable* table : {&places_, &answers_, &rounds_, &sequences_}) {
      if (absl::Status status = table->Write(&npz); !status.ok()) return status;
    }
    if (with_rows_) {
      absl::Status status = WriteRows("target", &rows_.target(), &npz);
      if (status.ok()) status = WriteRows("draft", &rows_.draft(), &npz);
      if (!status.ok()) return status;
    }
    return npz.Finish();
  }

 private:
  static bool Takes(const ExportedRound& exported, SequenceHandle sequence) {
    return exported.filter.TakesSequence(sequence, exported.book.RequestOf(sequence));
  }

  void TakeTimes(const TraceRound& round) {
    rounds_.Add("number", round.number);
    rounds_.Add("id", round.round_id);
    rounds_.Add("submitted_ns", round.times.submitted);
    rounds_.Add("taken_ns", round.times.taken);
    rounds_.Add("packed_ns", round.times.packed);
    rounds_.Add("ran_ns", round.times.ran);
    rounds_.Add("committed_ns", round.times.committed);
    rounds_.Add("answered_ns", round.times.answered);
    rounds_.EndLine();
  }

  void TakeAnswer(const TraceRound& round, const TraceAnswer& answer) {
    answers_.Add("round", round.number);
    answers_.Add("sequence", answer.sequence);
    answers_.Add("status", static_cast<uint32_t>(answer.status));
    answers_.Add("finish", static_cast<uint32_t>(answer.finish_reason));
    answers_.Add("accepted", answer.num_accepted);
    answers_.Add("kept", answer.num_kept);
    answers_.Add("total_kept", answer.total_kept);
    answers_.EndLine();
    ++num_answers_;
  }

  void TakePlace(const TraceRound& round, const TraceAnswer& answer, const PlaceView& view) {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    const PlaceDecision& d = view.decision;
    const bool was_drawn = d.draw_coin != kNoCoin;
    places_.Add("round", round.number);
    places_.Add("sequence", answer.sequence);
    places_.Add("place", view.place);
    places_.Add("position", view.task->first_position + static_cast<uint32_t>(view.depth));
    places_.Add("method", static_cast<uint32_t>(view.task->method));
    places_.Add("draft", view.draft);
    places_.Add("draft_kind", static_cast<uint8_t>(view.kind));
    places_.Add("p", view.p.value_or(kNone));
    places_.Add("q", view.q.value_or(kNone));
    places_.Add("p_weight", d.p_weight);
    places_.Add("p_mass", d.p_mass);
    places_.Add("q_weight", d.q_weight);
    places_.Add("q_mass", d.q_mass);
    places_.Add("accept_coin", view.accept_coin.value_or(kNone));
    places_.Add("verdict", static_cast<uint8_t>(view.verdict));
    places_.Add("token", view.token);
    places_.Add("token_p", view.token_p.value_or(kNone));
    places_.Add("draw_coin", view.draw_coin.value_or(kNone));
    places_.Add("draw_purpose", was_drawn ? static_cast<uint32_t>(d.draw_purpose) : 0);
    places_.Add("draw_low", was_drawn ? CoinToDouble(d.draw_interval.low) : kNone);
    places_.Add("draw_high", was_drawn ? CoinToDouble(d.draw_interval.high) : kNone);
    places_.Add("residual_mass", d.residual_mass >= 0 ? d.residual_mass : kNone);
    places_.Add("prefix", d.prefix);
    places_.Add("bound", d.bound >= 0 ? d.bound : kNone);
    places_.Add("zero_step", static_cast<uint8_t>(d.zero_step));
    places_.Add("target_row", TargetRowOf(view));
    places_.Add("draft_row", DraftRowOf(view));
    places_.EndLine();
  }

  // The places in the matrices of rows; -1: not recorded, or not exported.
  int64_t TargetRowOf(const PlaceView& view) const {
    const std::vector<uint32_t>& rows = view.task->target_rows;
    const size_t place = view.place;
    return place < rows.size() ? rows_.PlaceOf(TraceTensor::kTarget, rows[place]) : -1;
  }
  int64_t DraftRowOf(const PlaceView& view) const {
    const std::vector<uint32_t>& rows = view.task->draft_rows;
    const size_t node = view.node;
    const bool is_drawn = view.node != kRoot && view.kind != DraftKind::kOneHot;
    return is_drawn && node < rows.size() ? rows_.PlaceOf(TraceTensor::kDraft, rows[node]) : -1;
  }

  void TakeOpening(const SequenceEntry& entry) {
    sequences_.Add("handle", entry.opening.sequence);
    sequences_.AddText("request", entry.opening.request_id);
    sequences_.Add("method", static_cast<uint32_t>(entry.opening.method));
    sequences_.Add("seed", entry.opening.seed);
    sequences_.Add("drafted", entry.num_drafted);
    sequences_.Add("accepted", entry.num_accepted);
    sequences_.Add("total_kept", entry.total_kept);
    sequences_.EndLine();
  }

  absl::Status WriteRows(std::string_view name, RowMatrixColumns* matrix, NpzWriter* npz) {
    const std::string prefix(name);
    const std::string names[] = {prefix + "_rows", prefix + "_row_round", prefix + "_row_index"};
    absl::Status status = npz->Add({.name = names[0],
                                    .dtype = RowType(matrix->dtype),
                                    .shape = {matrix->count, rows_.vocab_size()},
                                    .values = &matrix->values});
    if (status.ok()) {
      status = npz->Add(
          {.name = names[1], .dtype = "<u8", .shape = {matrix->count}, .values = &matrix->rounds});
    }
    if (status.ok()) {
      status = npz->Add(
          {.name = names[2], .dtype = "<u4", .shape = {matrix->count}, .values = &matrix->indices});
    }
    return status;
  }

  const bool with_rows_;
  uint64_t num_answers_ = 0;
  ColumnTable places_{""};
  ColumnTable answers_{"answer_"};
  ColumnTable rounds_{"round_"};
  ColumnTable sequences_{"sequence_"};
  RowColumns rows_;
};

}  // namespace

absl::StatusOr<int> RunExport(const CommandOptions& options) {
  if (!options.format.empty() && options.format != "npz") {
    return absl::InvalidArgumentError(
        fmt::format("format = {} is not npz, the one format of export", options.format));
  }
  if (options.output.empty()) return absl::InvalidArgumentError("give -o FILE, the file to write");
  absl::StatusOr<OutputFile> out = OutputFile::Create(options.output);
  if (!out.ok()) return out.status();
  NpzExporter exporter(options.with_rows);
  TraceReader reader(options.paths);
  SequenceBook book;
  TraceItem item;
  uint64_t num_rounds = 0;
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(&item);
    if (!more.ok()) return more.status();
    if (!*more) break;
    const auto* const round = std::get_if<TraceRound>(&item.record);
    if (round != nullptr && !options.filter.TakesRound(round->number)) continue;
    book.Take(item);
    if (round == nullptr) continue;
    const absl::StatusOr<const RowFileReader*> rows = reader.RowsOf(*round);
    if (!rows.ok() && options.with_rows) return rows.status();
    ++num_rounds;
    absl::Status status = exporter.Take({.round = *round,
                                         .info = *reader.info(),
                                         .book = book,
                                         .filter = options.filter,
                                         .file = item.file,
                                         .rows = rows.ok() ? *rows : nullptr});
    if (!status.ok()) return status;
  }
  PrintWarnings(reader.warnings());
  if (exporter.num_answers() == 0) return NothingPasses(options);
  if (absl::Status status = exporter.Finish(book, &*out); !status.ok()) return status;
  const uint64_t size_bytes = out->size_bytes();
  if (absl::Status status = out->Commit(); !status.ok()) return status;
  fmt::print("{}: {} rounds, {} bytes\n", SafeText(options.output), num_rounds, size_bytes);
  return kExitOk;
}

}  // namespace specd::replay
