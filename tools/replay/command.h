// Command is one command of specd-replay, and CommandOptions are its checked flags.
//
// flags.cc reads the flags once, on the main thread. A command prints to stdout and returns its
// exit status; an error is a Status, which main prints.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/round.h"
#include "kernels/core/sequence_round.h"
#include "tools/replay/trace_reader.h"
#include "tools/terminal/terminal.h"

namespace specd::replay {

inline constexpr int kExitOk = 0;
inline constexpr int kExitDifferent = 1;  // verify and diff have found a difference
inline constexpr int kExitError = 2;      // bad flags, an unreadable file, nothing to check

enum class ListOf { kRounds, kSequences };

struct CommandOptions {
  std::vector<std::string> paths;  // the arguments after the command
  TraceFilter filter;
  std::optional<RoundStatus> status;
  bool only_rejected = false;
  ListOf list_of = ListOf::kRounds;
  std::string output;
  std::string tokenizer;
  int32_t top = 8;
  std::string backend = "cpu";
  int32_t threads = 1;
  std::vector<std::pair<std::string, std::string>> set;
  std::string method;
  int32_t num_seeds = 16;
  std::string by = "position";
  std::string format = "table";
  bool with_rows = false;  // of `export`; of `cut` unless --no-rows is given
  int32_t limit = 10;      // differences that are shown
  double draft_ms = 0;     // of one draft token, for `doctor`
  double target_ms = 0;    // of one forward pass of the target; 0: not given
  Paint paint;
};

struct Command {
  std::string_view name;
  std::string_view summary;
  std::string_view usage;                   // with examples
  std::span<const std::string_view> flags;  // that it takes
  absl::StatusOr<int> (*run)(const CommandOptions& options);
};

std::span<const Command> Commands();
const Command* FindCommand(std::string_view name);

// The flags of the command line. INVALID_ARGUMENT names a flag that the command does not take.
absl::StatusOr<CommandOptions> ReadOptions(const Command& command,
                                           std::vector<std::string> arguments);
// Lists the flags of a command with their meanings.
std::string FlagHelp(const Command& command);

// Prints the warnings of a reader, once it has read its files.
void PrintWarnings(const TraceReader& reader);

}  // namespace specd::replay
