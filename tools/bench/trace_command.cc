#include "tools/bench/trace_command.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "tools/bench/command.h"
#include "tools/bench/machine.h"
#include "tools/bench/table.h"
#include "tools/bench/trace_suite.h"

ABSL_DECLARE_FLAG(std::string, batch);
ABSL_DECLARE_FLAG(std::string, draft);
ABSL_DECLARE_FLAG(int32_t, threads);

ABSL_FLAG(std::string, directory, "",
          "trace: where the files are made and deleted; empty: the system's temporary directory");

namespace specd::bench {
namespace {

absl::StatusOr<int32_t> OneNumber(std::string_view flag, const std::string& text, int32_t minimum,
                                  int32_t maximum, int32_t by_default) {
  const absl::StatusOr<std::vector<int32_t>> numbers = ParseNumbers(
      {std::string_view(flag), text, minimum, maximum, {by_default}, {by_default}}, true);
  if (!numbers.ok()) return numbers.status();
  if (numbers->size() == 1) return numbers->front();
  return absl::InvalidArgumentError(
      fmt::format("{} = {} has {} numbers; trace measures one", flag, text, numbers->size()));
}

absl::StatusOr<TraceBenchOptions> OptionsFromFlags(const Machine& machine) {
  TraceBenchOptions options;
  absl::StatusOr<std::vector<int32_t>> batches =
      ParseNumbers({"batch", absl::GetFlag(FLAGS_batch), 1, 4096, {1, 32}, {1, 8, 32}},
                   absl::GetFlag(FLAGS_quick));
  if (!batches.ok()) return batches.status();
  options.batches = *std::move(batches);
  const auto vocab = OneNumber("vocab", absl::GetFlag(FLAGS_vocab), 1, 1 << 20, 128256);
  if (!vocab.ok()) return vocab.status();
  const auto draft = OneNumber("draft", absl::GetFlag(FLAGS_draft), 0, 64, 5);
  if (!draft.ok()) return draft.status();
  options.vocab_size = *vocab;
  options.draft = *draft;
  options.threads =
      absl::GetFlag(FLAGS_threads) == 0 ? machine.usable_cpus : absl::GetFlag(FLAGS_threads);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  if (!(options.seconds >= 0 && options.seconds <= 3600)) {
    return absl::InvalidArgumentError(
        fmt::format("seconds = {} is outside 0 .. 3600", options.seconds));
  }
  if (options.seconds == 0) options.seconds = absl::GetFlag(FLAGS_quick) ? 2 : 10;
  return options;
}

std::vector<std::string> CellsOf(const TraceMeasurement& m) {
  return {std::string(m.level),
          fmt::format("{}", m.batch),
          fmt::format("{}", m.draft),
          fmt::format("{}", m.vocab_size),
          fmt::format("{:.1f}", m.plain_us.median),
          fmt::format("{:.1f}", m.traced_us.median),
          fmt::format("{:.1f}", m.added_us),
          fmt::format("{:.1f}..{:.1f}", m.added_low_us, m.added_high_us),
          fmt::format("{:.2f} %", 100 * m.added_us / m.plain_us.median),
          m.bytes_per_sequence_round == 0 ? "-" : fmt::format("{:.0f}", m.bytes_per_sequence_round),
          fmt::format("{}", m.plain_us.num_samples),
          fmt::format("{}", m.num_dropped),
          fmt::format("{:.0f} %", 100 * m.load.others)};
}

void PrintJson(const TraceMeasurement& m) {
  fmt::print(
      "{{\"suite\": \"trace\", \"level\": \"{}\", \"batch\": {}, \"draft\": {}, \"vocab\": {}, "
      "\"plain_us\": {:.3f}, \"traced_us\": {:.3f}, \"added_us\": {:.3f}, \"added_low_us\": "
      "{:.3f}, "
      "\"added_high_us\": {:.3f}, \"bytes_per_sequence_round\": {:.1f}, \"pairs\": {}, "
      "\"lost\": {}, \"load\": {:.3f}}}\n",
      m.level, m.batch, m.draft, m.vocab_size, m.plain_us.median, m.traced_us.median, m.added_us,
      m.added_low_us, m.added_high_us, m.bytes_per_sequence_round, m.plain_us.num_samples,
      m.num_dropped, m.load.others);
}

// A directory of its own, which goes at the end.
absl::StatusOr<std::string> MakeDirectory() {
  std::string path = absl::GetFlag(FLAGS_directory);
  if (path.empty()) path = std::filesystem::temp_directory_path();
  path += "/specd-bench-XXXXXX";
  if (mkdtemp(path.data()) != nullptr) return path;
  return absl::InvalidArgumentError(fmt::format("directory: {} cannot be made", path));
}

}  // namespace

int RunTrace(const std::string& command) {
  if (absl::GetFlag(FLAGS_list)) {
    fmt::print(
        "rounds  decisions of every round\nhashes  and hashes of its rows\nrows    and the "
        "rows themselves\n");
    return 0;
  }
  const Machine machine = ReadMachine();
  absl::StatusOr<TraceBenchOptions> options = OptionsFromFlags(machine);
  if (!options.ok()) return Fail(kExitUsage, std::string(options.status().message()));
  const absl::StatusOr<ReportOptions> report = ReportOptionsFromFlags();
  if (!report.ok()) return Fail(kExitUsage, std::string(report.status().message()));
  const absl::StatusOr<std::string> directory = MakeDirectory();
  if (!directory.ok()) return Fail(kExitUsage, std::string(directory.status().message()));
  options->directory = *directory;

  const Progress progress;
  const bool is_json = report->format == ReportFormat::kJson;
  Table table(*report, 1);
  if (!is_json) {
    PrintHead(*report, command, Describe(machine, options->threads));
    fmt::print("row hash: {:.1f} GB/s on one CPU\n\n", MeasureRowHash());
    table.Begin({{"level", 8},
                 {"batch", 5},
                 {"draft", 5},
                 {"vocab", 7},
                 {"plain us", 9},
                 {"traced us", 9},
                 {"added us", 9},
                 {"95 %", 16},
                 {"added", 8},
                 {"bytes", 6},
                 {"pairs", 6},
                 {"lost", 5},
                 {"load", 5}});
  }
  const absl::Status status =
      TraceSuite(*options, {.on_progress = [&](std::string_view text) { progress.Show(text); },
                            .on_result =
                                [&](const TraceMeasurement& measurement) {
                                  progress.Clear();
                                  if (is_json) return PrintJson(measurement);
                                  table.Print(CellsOf(measurement));
                                }})
          .Run();
  progress.Clear();
  std::error_code ignored;
  std::filesystem::remove_all(*directory, ignored);
  return status.ok() ? 0 : Fail(kExitError, std::string(status.message()));
}

}  // namespace specd::bench
