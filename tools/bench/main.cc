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
constexpr Suite (*kSuites[])() = {VerifyCommand, AcceptCommand,  GpuCommand,    PtxCommand,
                                  StallCommand,  GrammarCommand, TraceCommand,  IpcCommand,
                                  PythonCommand, DetokCommand,   EgressCommand, RestartCommand};

std::string ExamplesOf(const Suite& suite, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(most, suite.examples.size()); ++i) {
    text += fmt::format("  specd-bench {} {}\n", suite.name, suite.examples[i]);
  }
  return text;
}

std::string Usage(const std::vector<Suite>& suites) {
  std::string names;
  std::string examples;
  for (const Suite& suite : suites) {
    names += fmt::format("  specd-bench {:<9} {}\n", suite.name, suite.summary);
    examples += ExamplesOf(suite, 1);
  }
  return fmt::format(
      "specd-bench: measures specd, each number beside the bound it is compared with.\n\n{}\nEvery "
      "answer is checked. specd-bench SUITE --help lists flags and "
      "defaults.\n\nExamples:\n{}\nExit "
      "status: 0 measured, whatever the numbers are; 1 a wrong answer or an error; 2 bad flags; 3 "
      "no\ndevice.\n",
      names, examples);
}

// The flags of every suite, then its own.
std::vector<Flag> TableOf(const Suite& suite) {
  using Kind = Flag::Kind;
  std::vector<Flag> table = {{"quick", Kind::kSwitch, "only the sizes that the design names"},
                             {"json", Kind::kSwitch, "one JSON object per line"},
                             {"markdown", Kind::kSwitch, "tables as docs/BENCHMARKS.md has them"},
                             {"list", Kind::kSwitch, "name the cases and do nothing"}};
  if (!suite.cases.empty()) {
    Flag& cases = table.emplace_back(Flag{
        .name = "case", .help = "cases by name, separated by commas; empty: all", .is_list = true});
    for (const CaseWords& words : suite.cases) cases.choices.push_back(words.name);
  }
  if (!suite.seconds.empty()) {
    table.push_back({"seconds", Kind::kReal, "time for each measurement; of grammar, for all",
                     suite.seconds, suite.quick_seconds, 0, 3600});
  }
  table.insert(table.end(), suite.flags.begin(), suite.flags.end());
  return table;
}

int Fail(int exit_code, std::string_view message) {
  return FailAs("specd-bench", exit_code, message);
}

int RunSuite(const Suite& suite, const Flags& flags, const std::string& command) {
  if (flags.IsOn("list")) {
    size_t width = 0;
    for (const CaseWords& words : suite.cases) width = std::max(width, words.name.size());
    for (const CaseWords& words : suite.cases) {
      fmt::print("{:<{}}  {}\n", words.name, width, words.summary);
    }
    return 0;
  }
  if (flags.IsOn("json") && flags.IsOn("markdown")) {
    return Fail(kExitBadCommandLine, "json and markdown exclude each other; give one of them");
  }
  Output out({.suite = std::string(suite.name),
              .command = command,
              .format = flags.IsOn("json")       ? Format::kJson
                        : flags.IsOn("markdown") ? Format::kMarkdown
                                                 : Format::kTable});
  const Machine machine = ReadMachine();
  out.Begin(machine.processor, Describe(machine));
  const absl::Status status = suite.run(flags, &out);
  if (status.ok()) {
    out.End();
    return 0;
  }
  const bool is_missing = absl::IsFailedPrecondition(status);
  return Fail(is_missing && suite.name == "gpu"               ? kExitNoDevice
              : is_missing || absl::IsInvalidArgument(status) ? kExitBadCommandLine
                                                              : kExitError,
              std::string(status.message()));
}

int Main(std::vector<std::string> arguments) {
  // The command as it was given, under the program's installed name.
  const std::string command = fmt::format("specd-bench {}", fmt::join(arguments, " "));
  const bool wants_help = std::erase(arguments, "--help") > 0;
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
    fmt::print("specd-bench {}: {}\n\nExamples:\n{}\nFlags:\n{}", suite->name, suite->summary,
               ExamplesOf(*suite, suite->examples.size()), HelpOf(table));
    return 0;
  }
  const absl::StatusOr<Flags> flags = Flags::Read(suite->name, table, arguments);
  if (!flags.ok()) return Fail(kExitBadCommandLine, std::string(flags.status().message()));
  return RunSuite(*suite, *flags, command);
}

}  // namespace
}  // namespace specd::bench

int main(int argc, char** argv) { return specd::bench::Main({argv + 1, argv + argc}); }
