#include <fmt/format.h>

#include <cstdio>

#include "tools/replay/command.h"
#include "tools/replay/info_command.h"

namespace specd::replay {
namespace {

constexpr Command kCommands[] = {
    {"info",
     "what is in a trace: build, times, counts, drops",
     "  specd-replay info TRACE...\n\nExample:\n  specd-replay info trace.mcap\n",
     {},
     &RunInfo},
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
