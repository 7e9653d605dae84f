#include <fmt/format.h>

#include <cstdio>

#include "tools/replay/command.h"
#include "tools/replay/info_command.h"
#include "tools/replay/list_command.h"

namespace specd::replay {
namespace {

constexpr std::string_view kListFlags[] = {"rounds", "sequences", "request", "sequence",
                                           "from",   "to",        "status",  "rejected"};

constexpr Command kCommands[] = {
    {"info",
     "what is in a trace: build, times, counts, drops",
     "  specd-replay info TRACE...\n\nExample:\n  specd-replay info trace.mcap\n",
     {},
     &RunInfo},
    {"list", "one line for each round or sequence",
     "  specd-replay list TRACE... [--rounds | --sequences] [filters]\n\n"
     "A line of --rounds is the part of one sequence in one round.\n\nExamples:\n"
     "  specd-replay list trace.mcap --rejected --from=100 --to=200\n"
     "  specd-replay list trace.mcap --sequences --request='chat-*'\n",
     kListFlags, &RunList},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

const Command* FindCommand(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

void PrintWarnings(const TraceReader& reader) {
  std::fflush(stdout);
  for (const std::string& warning : reader.warnings()) {
    fmt::print(stderr, "specd-replay: warning: {}\n", warning);
  }
}

}  // namespace specd::replay
