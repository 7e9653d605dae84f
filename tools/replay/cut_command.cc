#include "tools/replay/cut_command.h"

#include <fmt/format.h>

#include "tools/replay/trace_copier.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {
namespace {

absl::StatusOr<int> Copy(const CommandOptions& options, bool anonymised) {
  if (options.output.empty()) {
    return absl::InvalidArgumentError("give -o OUT.mcap, the trace to write");
  }
  TraceReader reader(options.paths);
  TraceCopier copier(&reader, options.output,
                     {.filter = options.filter,
                      .with_rows = options.with_rows && !anonymised,
                      .anonymised = anonymised});
  const absl::StatusOr<TraceCopier::Counts> counts = copier.Run();
  PrintWarnings(reader.warnings());
  if (!counts.ok()) return counts.status();
  if (counts->rounds == 0) return NothingPasses(options);
  fmt::print("{}: {} rounds of {} sequences, {} rows\n", SafeText(options.output), counts->rounds,
             counts->sequences, counts->rows);
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> RunCut(const CommandOptions& options) { return Copy(options, false); }
absl::StatusOr<int> RunAnonymise(const CommandOptions& options) { return Copy(options, true); }

}  // namespace specd::replay
