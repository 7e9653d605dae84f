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
#include "tools/replay/recordings.h"
#include "tools/replay/trace_reader.h"
#include "tools/terminal/terminal.h"

namespace specd::replay {

inline constexpr int kExitOk = 0;
inline constexpr int kExitDifferent = 1;  // verify and diff have found a difference
inline constexpr int kExitError = 2;  // bad flags, an unreadable file, nothing that was asked for

enum class ListOf { kRounds, kSequences };

struct CommandOptions {
  std::vector<std::string> paths;     // the files of one recording; of diff: the two arguments
  std::vector<Recording> recordings;  // those that were chosen; `paths` are of the first
  RecordingChoice choices[2];         // of diff, for A and B
  std::optional<uint64_t> round;      // of show
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
  bool with_rows = true;  // of `export`; of `cut`, `doctor` and `verify` unless --no-rows is given
  bool needs_rows = false;  // of `doctor`: a draft without rows is an error
  int32_t limit = 10;       // differences that are shown
  double draft_ms = 0;      // of one draft token, for `doctor`
  double target_ms = 0;     // of one forward pass of the target; 0: not given
  Paint paint;
};

struct Command {
  std::string_view name;
  std::string_view summary;
  std::string_view usage;                   // with examples
  std::span<const std::string_view> flags;  // that it takes, beside those that choose a recording
  absl::StatusOr<int> (*run)(const CommandOptions& options);
  bool takes_several = false;  // it runs for each recording, one after the other
};

std::span<const Command> Commands();
const Command* FindCommand(std::string_view name);

// The flags of the command line. INVALID_ARGUMENT names a flag that the command does not take.
// `given`: all arguments with their flags.
absl::StatusOr<CommandOptions> ReadOptions(const Command& command,
                                           std::vector<std::string> arguments,
                                           std::span<const std::string> given);
// Lists the flags of a command with their meanings.
std::string FlagHelp(const Command& command);

// Runs the command for the chosen recordings.
absl::StatusOr<int> RunCommand(const Command& command, const CommandOptions& options);

// OUT_OF_RANGE: the filters, which it names, leave nothing.
absl::Status NothingPasses(const CommandOptions& options);

// Prints the warnings of a reader, once it has read its files.
void PrintWarnings(std::span<const std::string> warnings);

}  // namespace specd::replay
