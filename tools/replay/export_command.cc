#include "tools/replay/export_command.h"

#include <fmt/format.h>

#include "tools/replay/exporter.h"
#include "tools/replay/output_file.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {
namespace {

std::unique_ptr<Exporter> MakeExporter(const CommandOptions& options) {
  if (options.format == "npz") return MakeNpzExporter(options.with_rows);
  if (options.format == "safetensors") return MakeSafetensorsExporter();
  if (options.format == "chrome") return MakeChromeExporter();
  return nullptr;
}

}  // namespace

absl::StatusOr<int> RunExport(const CommandOptions& options) {
  const std::unique_ptr<Exporter> exporter = MakeExporter(options);
  if (exporter == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("format = {} is none of npz, safetensors and chrome", options.format));
  }
  if (options.output.empty()) return absl::InvalidArgumentError("give -o FILE, the file to write");
  const bool wants_rows = options.with_rows || options.format == "safetensors";
  absl::StatusOr<OutputFile> out = OutputFile::Create(options.output);
  if (!out.ok()) return out.status();
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
    const RowFileReader* rows = nullptr;
    if (wants_rows && round->level == TraceLevel::kRows) {
      const absl::StatusOr<const RowFileReader*> opened = reader.Rows();
      if (!opened.ok()) return opened.status();
      rows = *opened;
    }
    ++num_rounds;
    absl::Status status = exporter->Take({.round = *round,
                                          .info = *reader.info(),
                                          .book = book,
                                          .filter = options.filter,
                                          .start_ns = reader.start_ns(),
                                          .file = item.file,
                                          .rows = rows});
    if (!status.ok()) return status;
  }
  PrintWarnings(reader);
  if (absl::Status status = exporter->Finish(book, &*out); !status.ok()) return status;
  const uint64_t size_bytes = out->size_bytes();
  if (absl::Status status = out->Commit(); !status.ok()) return status;
  fmt::print("{}: {} rounds, {} bytes\n", Printable(options.output), num_rounds, size_bytes);
  return kExitOk;
}

}  // namespace specd::replay
