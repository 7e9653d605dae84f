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

namespace specd::bench {
namespace {

constexpr int kExitError = 1;
constexpr int kExitNoDevice = 3;

std::vector<Suite> Suites() {
  return {VerifyCommand(),  AcceptCommand(), GpuCommand(),     PtxCommand(),
          OpeningCommand(), StallCommand(),  GrammarCommand(), TraceCommand(),
          IpcCommand(),     PythonCommand(), RestartCommand()};
}

std::string Usage() {
  std::string text =
      "specd-bench: measures specd, each number beside the bound it is compared with.\n\n";
  for (const Suite& suite : Suites()) {
    text += fmt::format("  specd-bench {:<9} {}\n", suite.name, suite.summary);
  }
  text +=
      "\nEvery answer is checked. specd-bench SUITE --help lists flags and "
      "defaults.\n\nExamples:\n";
  for (const Suite& suite : Suites()) {
    text += fmt::format("  specd-bench {} {}\n", suite.name, suite.examples.front());
  }
  return text +
         "\nExit status: 0 measured, whatever the numbers are; 1 a wrong answer or an error; 2 bad "
         "flags; 3 no\ndevice.\n";
}

// The flags of every suite, then its own.
std::vector<Flag> TableOf(const Suite& suite) {
  using Kind = Flag::Kind;
  std::vector<Flag> table = {
      {.name = "quick", .kind = Kind::kSwitch, .help = "only the sizes that the design names"},
      {.name = "json", .kind = Kind::kSwitch, .help = "one JSON object per line"},
      {.name = "markdown", .kind = Kind::kSwitch, .help = "tables as docs/BENCHMARKS.md has them"},
      {.name = "list", .kind = Kind::kSwitch, .help = "name the cases and do nothing"}};
  if (!suite.cases.empty()) {
    Flag& cases = table.emplace_back(Flag{
        .name = "case", .help = "cases by name, separated by commas; empty: all", .is_list = true});
    for (const CaseWords& words : suite.cases) cases.choices.push_back(words.name);
  }
  if (!suite.seconds.empty()) {
    table.push_back({.name = "seconds",
                     .kind = Kind::kReal,
                     .help = "time for each measurement; of grammar, for all",
                     .usual = suite.seconds,
                     .quick = suite.quick_seconds,
                     .maximum = 3600});
  }
  table.insert(table.end(), suite.flags.begin(), suite.flags.end());
  return table;
}

int Fail(int exit_code, std::string_view message) {
  fmt::print(stderr, "specd-bench: {}\n", message);
  return exit_code;
}

int PrintHelp(const Suite& suite) {
  fmt::print("specd-bench {}: {}\n\nExamples:\n", suite.name, suite.summary);
  for (const std::string_view example : suite.examples) {
    fmt::print("  specd-bench {} {}\n", suite.name, example);
  }
  fmt::print("\nFlags:\n{}", HelpOf(TableOf(suite)));
  return 0;
}

int RunSuite(const Suite& suite, const Flags& flags, std::string command) {
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
              .command = std::move(command),
              .format = flags.IsOn("json")       ? Format::kJson
                        : flags.IsOn("markdown") ? Format::kMarkdown
                                                 : Format::kTable});
  const absl::Status status = suite.run(flags, &out);
  if (status.ok()) {
    out.End();
    return 0;
  }
  const bool is_usage = absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
  return Fail(!is_usage                                                   ? kExitError
              : absl::IsFailedPrecondition(status) && suite.name == "gpu" ? kExitNoDevice
                                                                          : kExitBadCommandLine,
              std::string(status.message()));
}

int Main(std::vector<std::string> arguments) {
  // The command as it was given, under the program's installed name.
  std::string command = "specd-bench";
  for (const std::string& argument : arguments) command += " " + argument;
  const bool wants_help =
      std::erase_if(arguments, [](const std::string& each) { return each == "--help"; }) > 0;
  const std::vector<Suite> suites = Suites();
  const auto named = std::find_if(arguments.begin(), arguments.end(),
                                  [](const std::string& each) { return !each.starts_with("-"); });
  if (named == arguments.end()) {
    if (!wants_help) {
      const std::string flags =
          arguments.empty() ? "" : fmt::format("{} stands alone; ", fmt::join(arguments, " "));
      return Fail(kExitBadCommandLine,
                  flags + "give one suite, such as specd-bench verify --quick; see --help");
    }
    fmt::print("{}", Usage());
    return 0;
  }
  const auto suite = std::find_if(suites.begin(), suites.end(),
                                  [&](const Suite& each) { return each.name == *named; });
  if (suite == suites.end()) {
    std::vector<std::string_view> names;
    for (const Suite& each : suites) names.push_back(each.name);
    return Fail(kExitBadCommandLine,
                fmt::format("suite = {} is unknown; there are {}", *named, fmt::join(names, ", ")));
  }
  arguments.erase(named);
  if (wants_help) return PrintHelp(*suite);
  const absl::StatusOr<Flags> flags = Flags::Read(suite->name, TableOf(*suite), arguments);
  if (!flags.ok()) return Fail(kExitBadCommandLine, std::string(flags.status().message()));
  return RunSuite(*suite, *flags, std::move(command));
}

}  // namespace
}  // namespace specd::bench

int main(int argc, char** argv) { return specd::bench::Main({argv + 1, argv + argc}); }
