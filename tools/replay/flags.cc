#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tools/replay/command.h"
#include "tools/replay/names.h"
#include "tools/replay/output_guard.h"
#include "tools/replay/trace_writer.h"

ABSL_FLAG(std::string, request, "", "only this request id; NAME* takes every id that begins so");
ABSL_FLAG(std::string, sequence, "", "only this sequence: its handle, such as 0x100000001");
ABSL_FLAG(std::string, recording, "",
          "the recording of this number, if there are several; \"info\" lists them");
ABSL_FLAG(std::string, session, "", "the recording of this session of the daemon or engine");
ABSL_FLAG(std::string, rounds, "", "A:B, the rounds from A to B");
ABSL_FLAG(bool, sequences, false, "one line for each sequence");
ABSL_FLAG(std::string, from, "", "the first round");
ABSL_FLAG(std::string, to, "", "the last round");
ABSL_FLAG(
    std::string, status, "",
    "only answers with this status: ok, finished, bad_distribution, unknown_sequence, invalid, "
    "device_error or aborted");
ABSL_FLAG(bool, rejected, false, "only where a draft token was not accepted");
ABSL_FLAG(std::string, o, "", "the file to write; it appears whole or not at all");
ABSL_FLAG(std::string, tokenizer, "",
          "tokenizer file of the model (docs/DAEMON.md lists the kinds), to show text");
ABSL_FLAG(int32_t, top, 8, "candidates of each row, 0 .. 64");
ABSL_FLAG(std::string, backend, "cpu", "runs recorded rows again: cpu, scalar, emulated or cuda");
ABSL_FLAG(int32_t, threads, 1, "threads of the CPU backend, 1 .. 64; the bits do not depend on it");
ABSL_FLAG(std::string, set, "",
          "settings, separated by commas: temperature, top_p, top_k, min_p, filter_order; may be "
          "given several times");
ABSL_FLAG(std::string, method, "", "block, token, exact_match or greedy; empty: as recorded");
ABSL_FLAG(int32_t, seeds, 16, "seeds to average over, 1 .. 1000");
ABSL_FLAG(std::string, by, "position", "position, sequence, time, method, or class (of tokens)");
ABSL_FLAG(std::string, format, "", "the form of the output");
ABSL_FLAG(bool, rows, false, "with the recorded rows");
ABSL_FLAG(bool, no_rows, false, "without the recorded rows");
ABSL_FLAG(int32_t, limit, 10, "differences to show, 0 .. 1000000");
ABSL_FLAG(double, draft_ms, 0, "what one draft token costs, in ms");
ABSL_FLAG(double, target_ms, 0, "what one forward pass of the target costs, in ms; 0: not given");

namespace specd::replay {
namespace {

constexpr std::string_view kFlagNames[] = {
    "request", "sequence",  "rounds", "sequences", "from",    "to",       "status",   "rejected",
    "o",       "tokenizer", "top",    "backend",   "threads", "set",      "method",   "seeds",
    "by",      "format",    "rows",   "no_rows",   "limit",   "draft_ms", "target_ms"};

// Every command takes them.
constexpr std::string_view kRecordingFlags[] = {"recording", "session"};

// The meaning of a flag where a command has its own.
constexpr struct {
  std::string_view command;
  std::string_view flag;
  std::string_view text;
} kOwnHelp[] = {
    {"list", "rounds", "one line for each round (the default); A:B: only the rounds from A to B"},
    {"stats", "format", "table, json or svg (default: table)"},
    {"export", "format", "npz (default: npz)"},
    {"verify", "no_rows", "check the recorded numbers alone, without the row file"},
    {"doctor", "no_rows", "examine the recorded numbers alone, without the row file"},
    {"doctor", "rows", "refuse rounds without rows"},
    {"doctor", "format", "table or json (default: table)"},
    {"doctor", "o", "the file to write, with --format=json; it appears whole or not at all"},
    {"diff", "recording", "the recording of both sides, or A:B, one of each"},
    {"show", "top", "candidates of each row, 0 .. 64; 0: none (default: 8)"},
    {"report", "top",
     "candidates of each row, 0 .. 64; 0: none, without the row file (default: 8)"},
    {"verify", "limit", "differences to show, 0 .. 1000000 (default: 10)"},
    {"diff", "limit", "differing sequences to show, 0 .. 1000000 (default: 10)"},
};

absl::Status Wrong(std::string_view flag, std::string_view value, std::string_view wanted) {
  return absl::InvalidArgumentError(fmt::format("{} = {} is not {}", flag, value, wanted));
}

absl::Status ParseRound(std::string_view flag, const std::string& text,
                        std::optional<uint64_t>* round) {
  uint64_t number = 0;
  if (text.empty()) return absl::OkStatus();
  if (!absl::SimpleAtoi(text, &number)) return Wrong(flag, text, "the number of a round");
  *round = number;
  return absl::OkStatus();
}

absl::Status ParseCount(std::string_view flag, const std::string& text,
                        std::optional<uint64_t>* count) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) {
    return Wrong(flag, text, "a number; \"specd-replay info\" lists the recordings");
  }
  *count = number;
  return absl::OkStatus();
}

// Of diff the recording may be A:B.
absl::Status ReadChoices(const Command& command, CommandOptions* options) {
  const std::string session = absl::GetFlag(FLAGS_session);
  const std::string recording = absl::GetFlag(FLAGS_recording);
  std::vector<std::string> parts = absl::StrSplit(recording, ':');
  if (command.name != "diff") parts = {recording};
  if (parts.size() > 2) return Wrong("recording", recording, "N or A:B");
  for (size_t i = 0; i < 2; ++i) {
    RecordingChoice& choice = options->choices[i];
    absl::Status status;
    if (!session.empty()) status = ParseCount("session", session, &choice.session);
    if (status.ok() && !recording.empty()) {
      status = ParseCount("recording", parts[std::min(i, parts.size() - 1)], &choice.number);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ParseRange(const std::string& text, TraceFilter* filter) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 2) return Wrong("rounds", text, "A:B, such as 10:20");
  if (absl::Status status = ParseRound("rounds", parts[0], &filter->first_round); !status.ok()) {
    return status;
  }
  return ParseRound("rounds", parts[1], &filter->last_round);
}

absl::Status ReadFilter(const Command& command, CommandOptions* options) {
  TraceFilter& filter = options->filter;
  filter.request_id = absl::GetFlag(FLAGS_request);
  const std::string handle = absl::GetFlag(FLAGS_sequence);
  if (!handle.empty()) {
    uint64_t value = 0;
    if (!absl::SimpleHexAtoi(handle, &value)) {
      return Wrong("sequence", handle,
                   "a handle such as 0x100000001; \"list --sequences\" has them");
    }
    filter.sequence = value;
  }
  const std::string rounds = absl::GetFlag(FLAGS_rounds);
  const bool is_list = command.name == "list";
  if (!rounds.empty() && !(is_list && rounds == "all")) {
    if (absl::Status status = ParseRange(rounds, &filter); !status.ok()) return status;
  }
  for (const auto& [flag, value, round] :
       {std::tuple("from", absl::GetFlag(FLAGS_from), &filter.first_round),
        std::tuple("to", absl::GetFlag(FLAGS_to), &filter.last_round)}) {
    if (absl::Status status = ParseRound(flag, value, round); !status.ok()) return status;
  }
  if (filter.first_round && filter.last_round && *filter.first_round > *filter.last_round) {
    return absl::InvalidArgumentError(fmt::format("the first round, {}, is after the last, {}",
                                                  *filter.first_round, *filter.last_round));
  }
  if (absl::GetFlag(FLAGS_sequences) && is_list && rounds == "all") {
    return absl::InvalidArgumentError("rounds and sequences exclude each other");
  }
  options->list_of = absl::GetFlag(FLAGS_sequences) ? ListOf::kSequences : ListOf::kRounds;
  const std::string status = absl::GetFlag(FLAGS_status);
  RoundStatus parsed = RoundStatus::kOk;
  if (!status.empty() && !ParseStatus(status, &parsed)) {
    return Wrong("status", status, "a status of an answer, such as bad_distribution");
  }
  if (!status.empty()) options->status = parsed;
  options->only_rejected = absl::GetFlag(FLAGS_rejected);
  return absl::OkStatus();
}

struct Bounds {
  std::string_view flag;
  int32_t value;
  int32_t minimum;
  int32_t maximum;
};

absl::Status ReadNumbers(CommandOptions* options) {
  options->top = absl::GetFlag(FLAGS_top);
  options->threads = absl::GetFlag(FLAGS_threads);
  options->num_seeds = absl::GetFlag(FLAGS_seeds);
  options->limit = absl::GetFlag(FLAGS_limit);
  for (const Bounds& b :
       {Bounds{.flag = "top", .value = options->top, .minimum = 0, .maximum = 64},
        Bounds{.flag = "threads", .value = options->threads, .minimum = 1, .maximum = 64},
        Bounds{.flag = "seeds", .value = options->num_seeds, .minimum = 1, .maximum = 1000},
        Bounds{.flag = "limit", .value = options->limit, .minimum = 0, .maximum = 1000000}}) {
    if (b.value >= b.minimum && b.value <= b.maximum) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} = {} is outside {} .. {}", b.flag, b.value, b.minimum, b.maximum));
  }
  options->draft_ms = absl::GetFlag(FLAGS_draft_ms);
  options->target_ms = absl::GetFlag(FLAGS_target_ms);
  for (const auto& [flag, value] :
       {std::pair("draft_ms", options->draft_ms), std::pair("target_ms", options->target_ms)}) {
    if (value >= 0 && value <= 1e6) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} = {} is outside 0 .. 1000000; give milliseconds", flag, value));
  }
  if (options->draft_ms > 0 && options->target_ms <= 0) {
    return absl::InvalidArgumentError("draft_ms needs target_ms, the cost of a forward pass");
  }
  return absl::OkStatus();
}

absl::Status ReadSettings(CommandOptions* options) {
  for (const absl::string_view item :
       absl::StrSplit(absl::GetFlag(FLAGS_set), ',', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
    if (parts.size() != 2) {
      return Wrong("set", std::string_view(item.data(), item.size()),
                   "NAME=VALUE, such as temperature=0.7");
    }
    options->set.emplace_back(parts[0], parts[1]);
  }
  return absl::OkStatus();
}

// A flag that is off may be given as --noNAME. One of a file of flags shows by its value.
bool IsGiven(std::string_view name, std::span<const std::string> given) {
  const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag({name.data(), name.size()});
  if (flag->CurrentValue() != flag->DefaultValue()) return true;
  return std::any_of(given.begin(), given.end(), [name](std::string_view argument) {
    if (!argument.starts_with('-')) return false;
    argument.remove_prefix(std::min(argument.find_first_not_of('-'), argument.size()));
    argument = argument.substr(0, argument.find('='));
    return argument == name || (argument.starts_with("no") && argument.substr(2) == name);
  });
}

// Every command that writes a file passes here.
absl::Status CheckOutput(const Command& command, const CommandOptions& options) {
  if (options.output.empty()) return absl::OkStatus();
  const bool writes_rows = command.name == "cut" && options.with_rows;
  return CheckOutputs(options.paths,
                      {.file = options.output,
                       .rows = writes_rows ? RowPathBeside(options.output) : std::string()});
}

}  // namespace

std::string FlagHelp(const Command& command) {
  std::vector<std::string_view> names(command.flags.begin(), command.flags.end());
  names.insert(names.end(), std::begin(kRecordingFlags), std::end(kRecordingFlags));
  std::string text;
  for (const std::string_view name : names) {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag({name.data(), name.size()});
    std::string meaning = flag->Help();
    const std::string by_default = flag->DefaultValue();
    const bool has_default = !by_default.empty() && by_default != "false";
    if (has_default) meaning += fmt::format(" (default: {})", by_default);
    for (const auto& own : kOwnHelp) {
      if (own.command == command.name && own.flag == name) meaning = own.text;
    }
    const bool is_short = name.size() == 1;
    const std::string_view shown = name == "no_rows" ? "no-rows" : name;
    text +=
        fmt::format("  {:<13} {}\n", fmt::format("{}{}", is_short ? "-" : "--", shown), meaning);
  }
  return text;
}

absl::StatusOr<CommandOptions> ReadOptions(const Command& command,
                                           std::vector<std::string> arguments,
                                           std::span<const std::string> given) {
  for (const std::string_view name : kFlagNames) {
    const auto& flags = command.flags;
    if (std::find(flags.begin(), flags.end(), name) != flags.end()) continue;
    if (!IsGiven(name, given)) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} is no flag of {}; specd-replay {} --help lists them", name, command.name,
                    command.name));
  }
  CommandOptions options;
  options.paths = std::move(arguments);
  for (const auto read : {&ReadNumbers, &ReadSettings}) {
    if (absl::Status status = read(&options); !status.ok()) return status;
  }
  if (absl::Status status = ReadFilter(command, &options); !status.ok()) return status;
  options.output = absl::GetFlag(FLAGS_o);
  options.tokenizer = absl::GetFlag(FLAGS_tokenizer);
  options.backend = absl::GetFlag(FLAGS_backend);
  options.method = absl::GetFlag(FLAGS_method);
  options.by = absl::GetFlag(FLAGS_by);
  options.format = absl::GetFlag(FLAGS_format);
  options.with_rows =
      command.name == "export" ? absl::GetFlag(FLAGS_rows) : !absl::GetFlag(FLAGS_no_rows);
  options.needs_rows = command.name == "doctor" && absl::GetFlag(FLAGS_rows);
  if (options.needs_rows && !options.with_rows) {
    return absl::InvalidArgumentError("rows and no-rows exclude each other");
  }
  options.paint = Paint(IsColourful(STDOUT_FILENO));
  if (options.paths.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "give a trace: its .mcap file, the files of a rotated recording, or their directory; see "
        "specd-replay {} --help",
        command.name));
  }
  if (absl::Status status = ReadChoices(command, &options); !status.ok()) return status;
  if (command.name == "diff") return options;  // it takes two recordings
  if (command.name == "show") {
    uint64_t number = 0;
    if (options.paths.size() < 2 || !absl::SimpleAtoi(options.paths.back(), &number)) {
      return absl::InvalidArgumentError(
          "give the number of a round after the trace; \"specd-replay list TRACE\" has them");
    }
    options.round = number;
    options.paths.pop_back();
  }
  absl::StatusOr<std::vector<Recording>> found = FindRecordings(options.paths, options.choices[0]);
  if (!found.ok()) return found.status();
  options.recordings = *std::move(found);
  options.paths.clear();
  for (const Recording& recording : options.recordings) {
    options.paths.insert(options.paths.end(), recording.files.begin(), recording.files.end());
  }
  if (absl::Status status = CheckOutput(command, options); !status.ok()) return status;
  options.paths = options.recordings[0].files;
  return options;
}

}  // namespace specd::replay
