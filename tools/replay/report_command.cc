#include "tools/replay/report_command.h"

#include <fmt/format.h>

#include <filesystem>

#include "tools/replay/doctor/doctor_members.h"
#include "tools/replay/named_backend.h"
#include "tools/replay/output_file.h"
#include "tools/replay/replay_backend.h"
#include "tools/replay/report/report_page.h"
#include "tools/replay/report_data.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {

absl::StatusOr<int> RunReport(const CommandOptions& options) {
  if (options.output.empty()) return absl::InvalidArgumentError("give -o FILE.html");
  absl::StatusOr<TokenText> text = TokenText::Load(options.tokenizer);
  if (!text.ok()) return text.status();
  absl::StatusOr<std::unique_ptr<Backend>> made = MakeNamedBackend("cpu");
  if (!made.ok()) return made.status();
  absl::StatusOr<OutputFile> out = OutputFile::Create(options.output);
  if (!out.ok()) return out.status();
  ReplayBackend backend(*std::move(made), 1);
  Doctor doctor(&backend, *text, options.filter);
  ReportData data({.filter = options.filter, .num_candidates = options.top}, *std::move(text),
                  &backend);
  TraceReader reader(options.paths);
  TraceItem item;
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(&item);
    if (!more.ok()) return more.status();
    if (!*more) break;
    const auto* const round = std::get_if<TraceRound>(&item.record);
    const RowFileReader* rows = nullptr;
    // Without candidates the page reads no rows, and the doctor has the figures of decisions.
    if (round != nullptr && options.top > 0 && options.filter.TakesRound(round->number)) {
      const absl::StatusOr<const RowFileReader*> opened = reader.RowsOf(*round);
      if (!opened.ok()) {
        return absl::Status(opened.status().code(),
                            fmt::format("{}; give --top=0 for a page without rows",
                                        std::string(opened.status().message())));
      }
      rows = *opened;
    }
    if (absl::Status status = data.Take(item, rows, reader.start_ns()); !status.ok()) return status;
    if (data.is_full()) continue;  // the head is about the rounds that the page has
    if (absl::Status status = doctor.Take(item, rows); !status.ok()) return status;
  }
  PrintWarnings(reader.warnings());
  if (reader.info() == nullptr) return absl::InvalidArgumentError("the trace has no whole record");
  if (data.num_steps() == 0) return NothingPasses(options);
  const std::string name = std::filesystem::path(options.paths[0]).filename().string();
  absl::Status status = out->Write(kPageBefore);
  if (status.ok()) status = out->Write(data.Json(name, reader.warnings(), DoctorMembers(doctor)));
  for (const std::string_view part : kPageAfter) {
    if (status.ok()) status = out->Write(part);
  }
  const uint64_t size_bytes = out->size_bytes();
  if (status.ok()) status = out->Commit();
  if (!status.ok()) return status;
  fmt::print("{}: {} bytes\n", SafeText(options.output), size_bytes);
  return kExitOk;
}

}  // namespace specd::replay
