// specd-replay reads traces of rounds: it shows why each draft token was accepted or rejected, and
// runs the rounds again.

#include <fmt/format.h>

#include <cctype>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "daemon/base/command_line.h"
#include "tools/replay/command.h"
#include "tools/replay/interrupt.h"

namespace specd::replay {
namespace {

std::string Usage() {
  std::string text =
      "reads traces of rounds, which the daemon writes with --trace.\n\n"
      "  specd-replay COMMAND TRACE... [flags]\n\n";
  for (const Command& command : Commands()) {
    text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  }
  text +=
      "\nTRACE is the .mcap file of a recording; its rows are in the file beside it. If the\n"
      "recording was rotated, give all its files, or their directory. If a directory has several\n"
      "recordings, \"info\" lists them, and --recording=N or --session=S chooses.\n"
      "specd-replay COMMAND --help has the flags and examples of a command.\n\n"
      "Examples:\n"
      "  specd-replay info trace.mcap\n"
      "  specd-replay show trace.mcap 17 --tokenizer=tokenizer.json\n"
      "  specd-replay verify trace.mcap\n\n"
      "Exit status: 0; 1 if verify or diff found a difference, or doctor a fault; 2 for bad "
      "flags,\n"
      "an unreadable file, filters that nothing passes, or nothing that could be checked; 130 "
      "after\n"
      "Ctrl-C.";
  return text;
}

int PrintHelp(const Command* command) {
  if (command == nullptr) {
    fmt::print("specd-replay: {}\n", Usage());
  } else {
    fmt::print("specd-replay {}: {}\n\n{}\nFlags:\n{}", command->name, command->summary,
               command->usage, FlagHelp(*command));
  }
  return kExitOk;
}

int Fail(std::string_view message) {
  std::fflush(stdout);
  fmt::print(stderr, "specd-replay: {}\n", SafeText(message));
  return kExitError;
}

// The arguments as Abseil reads them. --rounds may stand alone, as a flag of `list`. --set may be
// given several times; its values become one list.
std::vector<std::string> Arguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  std::string set;
  for (int i = 0; i < argc; ++i) {
    std::string argument = argv[i];
    const bool has_range =
        i + 1 < argc && std::string_view(argv[i + 1]).find(':') != std::string_view::npos &&
        (std::isdigit(static_cast<unsigned char>(argv[i + 1][0])) != 0 || argv[i + 1][0] == ':');
    if (argument == "--rounds" && !has_range) argument = "--rounds=all";
    if (argument == "--no-rows") argument = "--no_rows";
    if (argument == "-o" && i + 1 < argc) argument = fmt::format("--o={}", argv[++i]);
    if (argument == "--set" && i + 1 < argc) argument = fmt::format("--set={}", argv[++i]);
    if (argument.starts_with("--set=")) {
      set += (set.empty() ? "" : ",") + argument.substr(6);
      continue;
    }
    arguments.push_back(argument);
  }
  if (!set.empty()) arguments.insert(arguments.begin() + 1, "--set=" + set);
  return arguments;
}

bool AsksForHelp(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-help" || argument == "-h") return true;
  }
  return false;
}

const Command* FirstCommand(const std::vector<std::string>& arguments) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (const Command* const command = FindCommand(arguments[i])) return command;
  }
  return nullptr;
}

int Main(int argc, char** argv) {
  CatchInterrupts();
  std::vector<std::string> given = Arguments(argc, argv);
  if (AsksForHelp(given)) return PrintHelp(FirstCommand(given));
  std::vector<char*> pointers;
  for (std::string& argument : given) pointers.push_back(argument.data());
  const std::vector<char*> rest = ParseFlags(static_cast<int>(pointers.size()), pointers.data(),
                                             {.usage = Usage(), .source = "tools/replay/"});
  if (rest.size() < 2) return Fail("give a command; specd-replay --help lists them");
  const Command* const command = FindCommand(rest[1]);
  if (command == nullptr) {
    return Fail(fmt::format("command = {} is unknown; specd-replay --help lists them", rest[1]));
  }
  const absl::StatusOr<CommandOptions> options =
      ReadOptions(*command, std::vector<std::string>(rest.begin() + 2, rest.end()), given);
  if (!options.ok()) return Fail(std::string(options.status().message()));
  const absl::StatusOr<int> exit_code = RunCommand(*command, *options);
  if (!exit_code.ok() && absl::IsCancelled(exit_code.status())) return kExitInterrupted;
  if (!exit_code.ok()) return Fail(std::string(exit_code.status().message()));
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return is_written ? *exit_code : Fail("stdout cannot be written");
}

}  // namespace
}  // namespace specd::replay

int main(int argc, char** argv) {
  try {
    return specd::replay::Main(argc, argv);
  } catch (const std::system_error& error) {  // of fmt::print, if stdout takes no more
    return specd::replay::Fail(error.what());
  }
}
