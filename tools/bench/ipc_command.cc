#include "tools/bench/ipc_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "tools/bench/command.h"
#include "tools/bench/ipc_suite.h"
#include "tools/bench/machine.h"
#include "tools/bench/table.h"

ABSL_DECLARE_FLAG(std::string, draft);

ABSL_FLAG(std::string, gap, "",
          "ipc: us between two rounds of the engine, separated by commas; default 0,200,1500");

ABSL_FLAG(std::string, specd, "",
          "ipc: the daemon's program; empty: specd in the folder of specd-bench");

namespace specd::bench {
namespace {

absl::StatusOr<std::vector<const IpcCase*>> CasesFromFlags() {
  std::vector<const IpcCase*> cases;
  const std::string names = absl::GetFlag(FLAGS_case);
  if (names.empty()) {
    for (const IpcCase& known : IpcCases()) cases.push_back(&known);
    return cases;
  }
  for (const absl::string_view part : absl::StrSplit(names, ',')) {
    const std::string_view name(part.data(), part.size());
    const IpcCase* const found = FindIpcCase(name);
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("case = {} is unknown; see specd-bench ipc --list", name));
    }
    cases.push_back(found);
  }
  return cases;
}

absl::StatusOr<IpcBenchOptions> OptionsFromFlags() {
  constexpr std::string_view kTaken[] = {"case", "vocab", "draft",    "gap",     "quick",
                                         "json", "list",  "markdown", "seconds", "specd"};
  if (absl::Status status = CheckFlags("ipc", kTaken); !status.ok()) return status;
  IpcBenchOptions options;
  options.specd = absl::GetFlag(FLAGS_specd);
  if (options.specd.empty()) {
    std::error_code ignored;
    options.specd =
        std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "specd";
  }
  const bool quick = absl::GetFlag(FLAGS_quick);
  absl::StatusOr<std::vector<const IpcCase*>> cases = CasesFromFlags();
  if (!cases.ok()) return cases.status();
  options.cases = *std::move(cases);
  const std::pair<NumberList, std::vector<int32_t>*> lists[] = {
      {{"vocab", absl::GetFlag(FLAGS_vocab), 1, 1 << 20, {2048, 32000}, {2048, 32000}},
       &options.vocab_sizes},
      {{"draft", absl::GetFlag(FLAGS_draft), 0, 64, {0, 5}, {0, 5}}, &options.drafts},
      {{"gap", absl::GetFlag(FLAGS_gap), 0, 100'000, {0, 200, 1500}, {0, 200, 1500}},
       &options.gaps_us}};
  for (const auto& [list, numbers] : lists) {
    absl::StatusOr<std::vector<int32_t>> parsed = ParseNumbers(list, quick);
    if (!parsed.ok()) return parsed.status();
    *numbers = *std::move(parsed);
  }
  options.seconds = absl::GetFlag(FLAGS_seconds);
  if (!(options.seconds >= 0 && options.seconds <= 3600)) {
    return absl::InvalidArgumentError(
        fmt::format("seconds = {} is outside 0 .. 3600", options.seconds));
  }
  if (options.seconds == 0) options.seconds = quick ? 1 : 5;
  return options;
}

std::vector<std::string> CellsOf(const IpcMeasurement& m) {
  const auto times = [](const Summary& summary) {
    return fmt::format("{:.1f} / {:.1f} / {:.1f}", summary.median, summary.p90, summary.p99);
  };
  return {std::string(m.ipc_case->name),
          fmt::format("{}", m.vocab_size),
          fmt::format("{}", m.draft),
          fmt::format("{}", m.gap_us),
          times(m.embedded_us),
          times(m.attached_us),
          fmt::format("{:.1f}", m.added_p50_us()),
          fmt::format("{:.1f}", m.added_p90_us()),
          !m.HasTarget() ? "-"
          : m.IsMet()    ? "met"
                         : "missed",
          fmt::format("{}", m.attached_us.num_samples),
          fmt::format("{:.0f} %", 100 * (m.load.others + m.load.stolen))};
}

std::string SummaryJson(std::string_view name, const Summary& summary) {
  return fmt::format(R"("{0}_p50_us": {1:.3f}, "{0}_p90_us": {2:.3f}, "{0}_p99_us": {3:.3f})", name,
                     summary.median, summary.p90, summary.p99);
}

void PrintJson(const IpcMeasurement& m) {
  fmt::print(R"({{"suite": "ipc", "case": "{}", "vocab": {}, "draft": {}, "gap_us": {}, {}, {}, )"
             R"("added_p50_us": {:.3f}, "added_p90_us": {:.3f}, "rounds": {}, "load": {:.3f}}})"
             "\n",
             m.ipc_case->name, m.vocab_size, m.draft, m.gap_us,
             SummaryJson("embedded", m.embedded_us), SummaryJson("attached", m.attached_us),
             m.added_p50_us(), m.added_p90_us(), m.attached_us.num_samples,
             m.load.others + m.load.stolen);
}

}  // namespace

int RunIpc(const std::string& command) {
  if (absl::GetFlag(FLAGS_list)) {
    for (const IpcCase& known : IpcCases()) fmt::print("{:<13} {}\n", known.name, known.summary);
    return 0;
  }
  const absl::StatusOr<IpcBenchOptions> options = OptionsFromFlags();
  if (!options.ok()) return Fail(kExitUsage, std::string(options.status().message()));
  const absl::StatusOr<ReportOptions> report = ReportOptionsFromFlags();
  if (!report.ok()) return Fail(kExitUsage, std::string(report.status().message()));

  const Progress progress;
  const bool is_json = report->format == ReportFormat::kJson;
  Table table(*report, 1);
  if (!is_json) {
    PrintHead(*report, command, Describe(ReadMachine(), 1));
    fmt::print(report->out,
               "times of a round in us: p50 / p90 / p99; the target of added_spin is 2 us at p50 "
               "and 5 us at p90\n\n");
    table.Begin({{"case", 12},
                 {"vocab", 6},
                 {"draft", 5},
                 {"gap us", 6},
                 {"embedded us", 23},
                 {"attached us", 23},
                 {"added p50", 9},
                 {"added p90", 9},
                 {"target", 6},
                 {"rounds", 6},
                 {"load", 5}});
  }
  const absl::Status status =
      IpcSuite(*options, {.on_progress = [&](std::string_view text) { progress.Show(text); },
                          .on_result =
                              [&](const IpcMeasurement& measurement) {
                                progress.Clear();
                                if (is_json) return PrintJson(measurement);
                                table.Print(CellsOf(measurement));
                              }})
          .Run();
  progress.Clear();
  return status.ok() ? 0 : Fail(kExitError, std::string(status.message()));
}

}  // namespace specd::bench
