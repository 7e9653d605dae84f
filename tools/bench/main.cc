// specd-bench measures specd and prints each number beside its bound or its peer.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/command_line.h"
#include "tools/bench/suite.h"
#include "tools/terminal/terminal.h"

namespace specd::bench {
namespace {

constexpr int kExitError = 1;
constexpr int kExitNoDevice = 3;

// In the order of --help.
constexpr Suite (*kSuites[])() = {VerifyCommand, GpuCommand,    StallCommand,  GrammarCommand,
                                  TraceCommand,  IpcCommand,    PythonCommand, DetokCommand,
                                  EgressCommand, RestartCommand};

std::string Usage(const std::vector<Suite>& suites) {
  std::string names;
  for (const Suite& suite : suites) {
    names += fmt::format("  specd-bench {:<9} {}\n", suite.name, suite.summary);
  }
  return fmt::format(
      "specd-bench: measures specd, each number beside the bound it is compared with.\n\n{}\n"
      "Example: specd-bench verify --quick --markdown. Every answer is checked.\n"
      "specd-bench SUITE --help lists flags and defaults.\n\n"
      "Exit status: 0 measured, whatever the numbers are; 1 a wrong answer or an error; 2 bad\n"
      "flags; 3 no device.\n",
      names);
}

int Fail(int exit_code, std::string_view message) {
  return FailAs("specd-bench", exit_code, message);
}

// The flags that every suite has.
constexpr std::string_view kSwitchHelp =
    "  --quick       only the sizes that the design names\n"
    "  --json        one JSON object per line\n"
    "  --markdown    tables as docs/BENCHMARKS.md has them\n"
    "  --list        name the cases and do nothing\n";

int RunSuite(const Suite& suite, const Flags& flags, Format format, const std::string& command) {
  Output out({.suite = std::string(suite.name), .command = command, .format = format});
  const Machine machine = ReadMachine();
  out.Begin(machine.processor,
            fmt::format("{}; {} usable CPUs, last-level cache {} MiB", machine.processor,
                        machine.usable_cpus, machine.last_level_bytes >> 20));
  const absl::Status status = suite.run(flags, &out);
  if (status.ok()) return 0;
  const bool is_missing = absl::IsFailedPrecondition(status);
  return Fail(is_missing && suite.name == "gpu"               ? kExitNoDevice
              : is_missing || absl::IsInvalidArgument(status) ? kExitBadCommandLine
                                                              : kExitError,
              std::string(status.message()));
}

int Main(std::vector<std::string> arguments) {
  // The command as it was given, under the program's installed name.
  const std::string command = fmt::format("specd-bench {}", fmt::join(arguments, " "));
  const auto take = [&](const char* name) { return std::erase(arguments, name) > 0; };
  const bool wants_help = take("--help");
  const bool wants_list = take("--list");
  const bool is_quick = take("--quick");
  const bool is_json = take("--json");
  const bool is_markdown = take("--markdown");
  std::vector<Suite> suites;
  for (const auto make : kSuites) suites.push_back(make());
  const auto named = std::ranges::find_if(
      arguments, [](const std::string& each) { return !each.starts_with("-"); });
  if (named == arguments.end()) {
    if (!wants_help) {
      const std::string flags =
          arguments.empty() ? "" : fmt::format("{} stands alone; ", fmt::join(arguments, " "));
      return Fail(kExitBadCommandLine,
                  flags + "give one suite, such as specd-bench verify --quick; see --help");
    }
    fmt::print("{}", Usage(suites));
    return 0;
  }
  const auto suite = std::ranges::find(suites, *named, &Suite::name);
  if (suite == suites.end()) {
    std::vector<std::string_view> names;
    for (const Suite& each : suites) names.push_back(each.name);
    return Fail(kExitBadCommandLine,
                fmt::format("suite = {} is unknown; there are {}", *named, fmt::join(names, ", ")));
  }
  arguments.erase(named);
  const std::vector<Flag> table = TableOf(*suite);
  if (wants_help) {
    fmt::print("specd-bench {}: {}\n\nFlags:\n{}{}", suite->name, suite->summary, kSwitchHelp,
               HelpOf(table));
    return 0;
  }
  if (wants_list) {
    for (const CaseWords& each : suite->cases) fmt::print("{:<16}  {}\n", each.name, each.summary);
    return 0;
  }
  if (is_json && is_markdown) {
    return Fail(kExitBadCommandLine, "json and markdown exclude each other; give one of them");
  }
  const absl::StatusOr<Flags> flags = Flags::Read(suite->name, table, arguments, is_quick);
  if (!flags.ok()) return Fail(kExitBadCommandLine, std::string(flags.status().message()));
  const Format format = is_json ? Format::kJson : is_markdown ? Format::kMarkdown : Format::kTable;
  return RunSuite(*suite, *flags, format, command);
}

}  // namespace
}  // namespace specd::bench

int main(int argc, char** argv) { return specd::bench::Main({argv + 1, argv + argc}); }
