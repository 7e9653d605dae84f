#include "tools/bench/stall_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "daemon/base/cpus.h"
#include "tools/bench/command.h"
#include "tools/bench/machine.h"
#include "tools/bench/stall_suite.h"
#include "tools/bench/table.h"

ABSL_DECLARE_FLAG(int32_t, threads);
ABSL_DECLARE_FLAG(std::string, case);

namespace specd::bench {
namespace {

absl::StatusOr<std::vector<std::string_view>> CasesFromFlags() {
  std::vector<std::string_view> cases;
  for (const absl::string_view part :
       absl::StrSplit(absl::GetFlag(FLAGS_case), ',', absl::SkipEmpty())) {
    const std::string_view name(part.data(), part.size());
    const auto* const found = std::find_if(std::begin(kStallCases), std::end(kStallCases),
                                           [name](const auto& each) { return each.name == name; });
    if (found == std::end(kStallCases)) {
      return absl::InvalidArgumentError(
          fmt::format("case = {} is unknown; see specd-bench stall --list", name));
    }
    cases.push_back(found->name);
  }
  return cases;
}

absl::StatusOr<StallSuite::Options> OptionsFromFlags(const Machine& machine) {
  constexpr std::string_view kTaken[] = {"quick",   "json", "markdown", "seconds",
                                         "threads", "case", "list"};
  if (absl::Status status = CheckFlags("stall", kTaken); !status.ok()) return status;
  absl::StatusOr<std::vector<std::string_view>> cases = CasesFromFlags();
  if (!cases.ok()) return cases.status();
  StallSuite::Options options;
  options.cases = *std::move(cases);
  options.threads = absl::GetFlag(FLAGS_threads);
  if (options.threads < 0 || options.threads > static_cast<int32_t>(kThreadsMax)) {
    return absl::InvalidArgumentError(
        fmt::format("threads = {} is outside 0 .. {}", options.threads, kThreadsMax));
  }
  if (options.threads == 0)
    options.threads = std::min(machine.usable_cpus, static_cast<int32_t>(kThreadsMax));
  options.seconds = absl::GetFlag(FLAGS_seconds);
  if (!(options.seconds >= 0 && options.seconds <= 3600)) {
    return absl::InvalidArgumentError(
        fmt::format("seconds = {} is outside 0 .. 3600", options.seconds));
  }
  if (options.seconds == 0) options.seconds = absl::GetFlag(FLAGS_quick) ? 5 : 20;
  return options;
}

std::string RatioCell(double ratio) { return ratio == 0 ? "-" : fmt::format("{:.2f}", ratio); }

void PrintJson(const StallMeasurement& m) {
  fmt::print(
      "{{\"suite\": \"stall\", \"case\": \"{}\", \"threads\": {}, \"median\": {:.3f}, \"p90\": "
      "{:.3f}, \"p99\": {:.3f}, \"max\": {:.3f}, \"unit\": \"us\", \"samples\": {}, \"ratio\": "
      "{:.4f}, \"ratio_p99\": {:.4f}, \"ratio_max\": {:.4f}, \"foreign_load\": {:.3f}}}\n",
      m.case_name, m.threads, m.round_us.median, m.round_us.p90, m.round_us.p99, m.round_us.max,
      m.round_us.num_samples, m.ratio, m.ratio_p99, m.ratio_max, m.load.others);
}

std::vector<std::string> CellsOf(const StallMeasurement& m) {
  return {std::string(m.case_name),
          fmt::format("{}", m.threads),
          fmt::format("{}", m.round_us.num_samples),
          fmt::format("{:.1f}", m.round_us.median),
          fmt::format("{:.1f}", m.round_us.p90),
          fmt::format("{:.1f}", m.round_us.p99),
          fmt::format("{:.1f}", m.round_us.max),
          RatioCell(m.ratio),
          RatioCell(m.ratio_p99),
          RatioCell(m.ratio_max),
          fmt::format("{:.0f} %", 100 * (m.load.others + m.load.stolen))};
}

}  // namespace

int RunStall(const std::string& command) {
  if (absl::GetFlag(FLAGS_list)) {
    for (const StallCase& each : kStallCases) fmt::print("{:9}{}\n", each.name, each.meaning);
    return 0;
  }
  const Machine machine = ReadMachine();
  absl::StatusOr<StallSuite::Options> options = OptionsFromFlags(machine);
  if (!options.ok()) return Fail(kExitUsage, std::string(options.status().message()));
  const absl::StatusOr<ReportOptions> report = ReportOptionsFromFlags();
  if (!report.ok()) return Fail(kExitUsage, std::string(report.status().message()));

  const Progress progress;
  options->on_progress = [&](std::string_view text) { progress.Show(text); };
  const absl::StatusOr<std::vector<StallMeasurement>> measured = StallSuite(*options).Run();
  progress.Clear();
  if (!measured.ok()) return Fail(kExitError, std::string(measured.status().message()));
  if (report->format == ReportFormat::kJson) {
    for (const StallMeasurement& m : *measured) PrintJson(m);
    return 0;
  }
  PrintHead(*report, command, Describe(machine, options->threads));
  Table table(*report, 1);
  table.Begin({{"case", 8},
               {"threads", 7},
               {"samples", 8},
               {"median us", 9},
               {"p90 us", 9},
               {"p99 us", 9},
               {"max us", 10},
               {"ratio", 6},
               {"ratio p99", 9},
               {"ratio max", 9},
               {"load", 5}});
  for (const StallMeasurement& m : *measured) table.Print(CellsOf(m));
  return 0;
}

}  // namespace specd::bench
