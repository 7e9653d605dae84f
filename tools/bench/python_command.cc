#include "tools/bench/python_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "tools/bench/command.h"
#include "tools/bench/machine.h"
#include "tools/bench/python_suite.h"
#include "tools/bench/table.h"

ABSL_DECLARE_FLAG(std::string, specd);

ABSL_FLAG(std::string, python, "python3",
          "python: an interpreter with numpy, which finds the package specd (PYTHONPATH, "
          "SPECD_LIBRARY); grammar --base=xgrammar: one with xgrammar");

namespace specd::bench {
namespace {

absl::StatusOr<std::vector<const PythonCase*>> CasesFromFlags() {
  std::vector<const PythonCase*> cases;
  const std::string names = absl::GetFlag(FLAGS_case);
  if (names.empty()) {
    for (const PythonCase& known : PythonCases()) cases.push_back(&known);
    return cases;
  }
  for (const absl::string_view part : absl::StrSplit(names, ',')) {
    const std::string_view name(part.data(), part.size());
    const PythonCase* const found = FindPythonCase(name);
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("case = {} is unknown; see specd-bench python --list", name));
    }
    cases.push_back(found);
  }
  return cases;
}

absl::StatusOr<PythonBenchOptions> OptionsFromFlags() {
  constexpr std::string_view kTaken[] = {"case",     "vocab",   "quick", "json",  "list",
                                         "markdown", "seconds", "specd", "python"};
  if (absl::Status status = CheckFlags("python", kTaken); !status.ok()) return status;
  PythonBenchOptions options;
  options.python = absl::GetFlag(FLAGS_python);
  options.specd = absl::GetFlag(FLAGS_specd);
  if (options.specd.empty()) {
    std::error_code ignored;
    options.specd =
        std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "specd";
  }
  const bool quick = absl::GetFlag(FLAGS_quick);
  absl::StatusOr<std::vector<const PythonCase*>> cases = CasesFromFlags();
  if (!cases.ok()) return cases.status();
  options.cases = *std::move(cases);
  absl::StatusOr<std::vector<int32_t>> vocab_sizes = ParseNumbers(
      {"vocab", absl::GetFlag(FLAGS_vocab), 16, 1 << 17, {1024}, {1024, 32000}}, quick);
  if (!vocab_sizes.ok()) return vocab_sizes.status();
  options.vocab_sizes = *std::move(vocab_sizes);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  if (!(options.seconds >= 0 && options.seconds <= 3600)) {
    return absl::InvalidArgumentError(
        fmt::format("seconds = {} is outside 0 .. 3600", options.seconds));
  }
  if (options.seconds == 0) options.seconds = quick ? 2 : 10;
  return options;
}

std::vector<std::string> CellsOf(const PythonMeasurement& m) {
  const auto times = [](const Summary& summary) {
    return fmt::format("{:.1f} ({:.1f} .. {:.1f})", summary.median, summary.p10, summary.p90);
  };
  return {std::string(m.python_case->name),
          fmt::format("{}", m.vocab_size),
          times(m.c_us),
          times(m.python_us),
          fmt::format("{:.2f} ({:.2f} .. {:.2f})", m.ratio.median, m.ratio.p10, m.ratio.p90),
          fmt::format("{:.1f}", m.c_each_us.median),
          fmt::format("{:.1f}", m.python_each_us.median),
          !m.HasTarget() ? "-"
          : m.IsMet()    ? "met"
                         : "missed",
          fmt::format("{}", m.c_us.num_samples),
          fmt::format("{:.0f} %", 100 * (m.load.others + m.load.stolen))};
}

void PrintJson(const PythonMeasurement& m) {
  const auto fields = [](std::string_view name, const Summary& summary) {
    return fmt::format(R"("{0}": {1:.3f}, "{0}_p10": {2:.3f}, "{0}_p90": {3:.3f})", name,
                       summary.median, summary.p10, summary.p90);
  };
  fmt::print(R"({{"suite": "python", "case": "{}", "vocab": {}, {}, {}, {}, {}, {}, )"
             R"("samples": {}, "load": {:.3f}}})"
             "\n",
             m.python_case->name, m.vocab_size, fields("c_us", m.c_us),
             fields("python_us", m.python_us), fields("ratio", m.ratio),
             fields("c_each_us", m.c_each_us), fields("python_each_us", m.python_each_us),
             m.c_us.num_samples, m.load.others + m.load.stolen);
}

}  // namespace

int RunPython(const std::string& command) {
  if (absl::GetFlag(FLAGS_list)) {
    for (const PythonCase& known : PythonCases())
      fmt::print("{:<18} {}\n", known.name, known.summary);
    return 0;
  }
  const absl::StatusOr<PythonBenchOptions> options = OptionsFromFlags();
  if (!options.ok()) return Fail(kExitUsage, std::string(options.status().message()));
  const absl::StatusOr<ReportOptions> report = ReportOptionsFromFlags();
  if (!report.ok()) return Fail(kExitUsage, std::string(report.status().message()));

  const Progress progress;
  const bool is_json = report->format == ReportFormat::kJson;
  Table table(*report, 1);
  if (!is_json) {
    PrintHead(*report, command, Describe(ReadMachine(), 1));
    fmt::print(
        report->out,
        "times in us: median (p10 .. p90); ratio = Python / C, of neighbouring blocks; each: "
        "the calls for single sequences\n\n");
    table.Begin({{"case", 17},
                 {"vocab", 6},
                 {"C us", 23},
                 {"Python us", 23},
                 {"ratio", 19},
                 {"C each us", 9},
                 {"Python each us", 14},
                 {"target", 6},
                 {"samples", 7},
                 {"load", 5}});
  }
  const absl::Status status =
      PythonSuite(*options, {.on_progress = [&](std::string_view text) { progress.Show(text); },
                             .on_result =
                                 [&](const PythonMeasurement& measurement) {
                                   progress.Clear();
                                   if (is_json) return PrintJson(measurement);
                                   table.Print(CellsOf(measurement));
                                 }})
          .Run();
  progress.Clear();
  return status.ok() ? 0 : Fail(kExitError, std::string(status.message()));
}

}  // namespace specd::bench
