#include "tools/replay/doctor/doctor_command.h"

#include <fmt/format.h>

#include "tools/replay/doctor/examination_text.h"
#include "tools/replay/named_backend.h"
#include "tools/replay/output_file.h"

namespace specd::replay {
namespace {

RowsUse UseOf(const CommandOptions& options) {
  if (options.needs_rows) return RowsUse::kAll;
  return options.with_rows ? RowsUse::kIfRecorded : RowsUse::kNone;
}

}  // namespace

absl::StatusOr<int> RunDoctor(const CommandOptions& options) {
  if (!options.format.empty() && options.format != "table" && options.format != "json") {
    return absl::InvalidArgumentError(
        fmt::format("format = {} is neither table nor json", options.format));
  }
  if (options.format != "json" && !options.output.empty()) {
    return absl::InvalidArgumentError("o is for --format=json; a table goes to stdout");
  }
  absl::StatusOr<std::unique_ptr<Backend>> made = MakeNamedBackend(options.backend);
  if (!made.ok()) return made.status();
  const absl::StatusOr<Examination> examination =
      Examine({.paths = options.paths,
               .filter = options.filter,
               .tokenizer = options.tokenizer,
               .threads = options.threads,
               .costs = {.draft_ms = options.draft_ms, .target_ms = options.target_ms},
               .rows = UseOf(options)},
              *std::move(made));
  if (!examination.ok()) return examination.status();
  PrintWarnings(examination->warnings);
  if (options.format == "json") {
    absl::Status status = WriteText(options.output, JsonOf(*examination) + "\n");
    if (!status.ok()) return status;
  } else {
    PrintAll(*examination, options.paint);
  }
  return examination->has_fault() ? kExitDifferent : kExitOk;
}

}  // namespace specd::replay
