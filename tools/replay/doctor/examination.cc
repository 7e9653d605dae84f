#include "tools/replay/doctor/examination.h"

#include <fmt/format.h>

#include <utility>

namespace specd::replay {
namespace {

// The rows of the file that the item is of, as far as they are wanted.
absl::StatusOr<const RowFileReader*> RowsFor(const TraceItem& item,
                                             const ExaminationOptions& options,
                                             TraceReader* reader) {
  const auto* const round = std::get_if<TraceRound>(&item.record);
  if (round == nullptr || options.rows == RowsUse::kNone) return nullptr;
  if (!options.filter.TakesRound(round->number)) return nullptr;
  return reader->RowsOf(*round);
}

// An error of rows, with what to do.
absl::Status WithRemedy(const absl::Status& status) {
  return absl::Status(status.code(),
                      fmt::format("{}; give --no-rows to examine the recorded numbers alone",
                                  std::string(status.message())));
}

// An error once a draft had no rows.
absl::Status CheckRows(const Doctor& doctor, const TraceItem& item, const TraceReader& reader) {
  if (doctor.without_rows().empty()) return absl::OkStatus();
  const std::string& path = reader.paths()[item.file];
  const TraceInfo* const info = reader.info();
  const bool has_file = info != nullptr && !info->row_file.empty();
  return absl::NotFoundError(fmt::format(
      "{}: drafts have no rows ({}), and --rows asks for them; record with level=rows, or leave "
      "--rows out",
      has_file ? RowPathOf(path, *info) : path, TextOf(*doctor.without_rows().begin())));
}

}  // namespace

absl::StatusOr<Examination> Examine(const ExaminationOptions& options,
                                    std::unique_ptr<Backend> backend) {
  absl::StatusOr<TokenText> text = TokenText::Load(options.tokenizer);
  if (!text.ok()) return text.status();
  Examination examination;
  examination.backend = std::make_unique<ReplayBackend>(std::move(backend), options.threads);
  examination.doctor =
      std::make_unique<Doctor>(examination.backend.get(), *std::move(text), options.filter);
  TraceReader reader(options.paths, options.is_growing);
  TraceItem item;
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(&item);
    if (!more.ok()) return more.status();
    if (!*more) break;
    const absl::StatusOr<const RowFileReader*> rows = RowsFor(item, options, &reader);
    if (!rows.ok()) return WithRemedy(rows.status());
    const absl::Status taken = examination.doctor->Take(item, *rows);
    if (!taken.ok()) return absl::IsDataLoss(taken) ? WithRemedy(taken) : taken;
    if (options.rows != RowsUse::kAll) continue;
    if (absl::Status s = CheckRows(*examination.doctor, item, reader); !s.ok()) return s;
  }
  examination.warnings = reader.warnings();
  if (examination.doctor->all().count == 0) {
    return absl::OutOfRangeError("no draft was judged in these rounds, so there is nothing to say");
  }
  const Costs& costs = options.costs;
  examination.findings = FindingsOf(*examination.doctor, costs);
  examination.lengths = examination.doctor->lengths().Gains(costs.draft_ms, costs.target_ms);
  return examination;
}

}  // namespace specd::replay
