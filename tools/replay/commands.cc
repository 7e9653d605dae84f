#include <fmt/format.h>

#include <cstdio>

#include "tools/replay/command.h"
#include "tools/replay/cut_command.h"
#include "tools/replay/diff_command.h"
#include "tools/replay/doctor/doctor_command.h"
#include "tools/replay/export_command.h"
#include "tools/replay/info_command.h"
#include "tools/replay/list_command.h"
#include "tools/replay/names.h"
#include "tools/replay/report_command.h"
#include "tools/replay/rerun_command.h"
#include "tools/replay/show_command.h"
#include "tools/replay/stats_command.h"
#include "tools/replay/verify_command.h"

namespace specd::replay {
namespace {

constexpr std::string_view kListFlags[] = {"rounds", "sequences", "request", "sequence",
                                           "from",   "to",        "status",  "rejected"};
constexpr std::string_view kShowFlags[] = {"sequence", "request", "tokenizer", "top"};
constexpr std::string_view kVerifyFlags[] = {"backend", "threads",  "rounds", "from",   "to",
                                             "request", "sequence", "limit",  "no_rows"};

constexpr std::string_view kStatsFlags[] = {"by",   "format", "o",       "tokenizer", "rounds",
                                            "from", "to",     "request", "sequence",  "status"};
constexpr std::string_view kDiffFlags[] = {"request", "limit"};
constexpr std::string_view kRerunFlags[] = {"set",    "method", "seeds", "backend", "threads",
                                            "rounds", "from",   "to",    "request", "sequence"};
constexpr std::string_view kExportFlags[] = {"format", "o",  "rows",    "rounds",
                                             "from",   "to", "request", "sequence"};
constexpr std::string_view kDoctorFlags[] = {
    "draft_ms", "target_ms", "format", "o",       "tokenizer", "backend", "threads",
    "rounds",   "from",      "to",     "request", "sequence",  "rows",    "no_rows"};
constexpr std::string_view kCutFlags[] = {"o",       "rounds",   "from",   "to",
                                          "request", "sequence", "no_rows"};
constexpr std::string_view kAnonymiseFlags[] = {"o", "rounds", "from", "to", "request", "sequence"};
constexpr std::string_view kReportFlags[] = {"o",    "tokenizer", "top",     "rounds",
                                             "from", "to",        "request", "sequence"};

constexpr Command kCommands[] = {
    {"info",
     "what is in a trace: build, times, counts, drops",
     "  specd-replay info TRACE...\n\n"
     "Of several recordings, such as the sessions of a daemon's folder, it has one line each.\n\n"
     "Examples:\n  specd-replay info trace.mcap\n  specd-replay info traces --recording=2\n",
     {},
     &RunInfo},
    {"list", "one line for each round or sequence",
     "  specd-replay list TRACE... [--rounds | --sequences] [filters]\n\n"
     "A line of --rounds is the part of one sequence in one round.\n\nExamples:\n"
     "  specd-replay list trace.mcap --rejected --from=100 --to=200\n"
     "  specd-replay list trace.mcap --sequences --request='chat-*'\n",
     kListFlags, &RunList, true},
    {"show", "the decisions of one round: p, q, coin, verdict and why",
     "  specd-replay show TRACE... ROUND [flags]\n\n"
     "With recorded rows it shows the best candidates of target and draft, and the residual.\n\n"
     "Examples:\n"
     "  specd-replay show trace.mcap 17\n"
     "  specd-replay show trace.mcap 17 --sequence=0x100000001 --tokenizer=tokenizer.json "
     "--top=5\n",
     kShowFlags, &RunShow},
    {"verify", "run the rounds again and compare them to the bit",
     "  specd-replay verify TRACE... [flags]\n\n"
     "A round with rows is run again: outcome, tokens, path, scores and decisions are compared, "
     "and\n"
     "\"equal\" means to the bit. Without rows its coins and decisions are computed again from "
     "the\n"
     "recorded numbers, and \"consistent\" means that they fit. What the engine was told (status,\n"
     "finish reason, counts, stop token) is compared with the finish rules either way. Rows that "
     "are\n"
     "recorded and cannot be read are an error; --no-rows checks without them.\n\n"
     "Backends: cpu (the widest instructions of this processor), scalar (the same code without\n"
     "vector instructions), emulated (a CUDA block on the host, slow; in a build with tests),\n"
     "cuda (in a build with nvcc, on a machine with a device).\n\n"
     "Exit status: 0 all that could be checked is equal; 1 a difference; 2 nothing could be\n"
     "checked, or an error.\n\nExamples:\n"
     "  specd-replay verify trace.mcap\n"
     "  specd-replay verify trace.mcap --backend=scalar --rounds=10:20\n",
     kVerifyFlags, &RunVerify, true},
    {"diff", "the first difference between two runs, and its cause",
     "  specd-replay diff A B [flags]\n\nA and B are traces, or directories of rotated ones. "
     "Sequences are matched by request id. Everything that the engines received is compared. The\n"
     "causes are parameters, coins, draft, rows and grammar; a difference without a cause is a "
     "wrong\n"
     "decision, which is a bug. --recording=A:B chooses two recordings, also of one directory.\n\n"
     "Exit status: 0 no difference; 1 a difference, or a sequence in one run only (not with\n"
     "--request); 2 an error, or no request id in common.\n\nExamples:\n"
     "  specd-replay diff monday.mcap tuesday.mcap --request='chat-*'\n"
     "  specd-replay diff traces traces --recording=1:2\n",
     kDiffFlags, &RunDiff},
    {"rerun", "what if: acceptance of the recorded drafts under other settings",
     "  specd-replay rerun TRACE... --set NAME=VALUE... --method=METHOD\n\n"
     "It needs the rows of all places: record with level=rows,places=all.\n\nExamples:\n"
     "  specd-replay rerun trace.mcap --set temperature=0.7 --set top_p=0.9\n"
     "  specd-replay rerun trace.mcap --method=token --seeds=64\n",
     kRerunFlags, &RunRerun},
    {"stats", "acceptance by position, sequence, time, method or class of token",
     "  specd-replay stats TRACE... [flags]\n\n"
     "Intervals are Wilson's of 95 %, as if tokens were independent.\n\nExamples:\n"
     "  specd-replay stats trace.mcap --by=time\n"
     "  specd-replay stats trace.mcap --by=class --tokenizer=tokenizer.json\n"
     "  specd-replay stats trace.mcap --format=svg -o acceptance.svg\n",
     kStatsFlags, &RunStats, true},
    {"doctor", "why drafts are accepted or not, and what to do about it",
     "  specd-replay doctor TRACE... [flags]\n\n"
     "A fault is a figure that is more than 4 standard errors from what the declared p, q and\n"
     "coins say. Record with level=rows to have its cause named. --draft_ms and --target_ms, the\n"
     "costs of a draft token and of a forward pass, find the best length of a draft. Rows that "
     "are\n"
     "recorded and cannot be read are an error; --no-rows does without them, and --rows refuses\n"
     "rounds without rows.\n\n"
     "Exit status: 0 no fault; 1 a fault; 2 an error, or no judged draft.\n\nExamples:\n"
     "  specd-replay doctor trace.mcap\n"
     "  specd-replay doctor trace.mcap --draft_ms=1.5 --target_ms=20\n",
     kDoctorFlags, &RunDoctor, true},
    {"export", "a file of numpy, npz",
     "  specd-replay export TRACE... -o FILE.npz [flags]\n\n"
     "A row for each place, answer, round and sequence; with --rows also the logits.\n"
     "bfloat16 rows are uint16.\n\nExamples:\n"
     "  specd-replay export trace.mcap --rows -o trace.npz\n",
     kExportFlags, &RunExport},
    {"cut", "a smaller trace, to attach to a bug report",
     "  specd-replay cut TRACE... -o OUT.mcap [filters] [--no-rows]\n\n"
     "The rows go into OUT.rows.\n\nExample:\n"
     "  specd-replay cut trace.mcap -o bug.mcap --rounds=100:120 --request=chat-17\n",
     kCutFlags, &RunCut},
    {"anonymise", "a trace without text and ids, with all its numbers",
     "  specd-replay anonymise TRACE... -o OUT.mcap [filters]\n\n"
     "Request ids become r1, r2, ... Token ids are numbered within each task. Rows, masks, token\n"
     "edits and file names are dropped; p, q, coins, seeds and times stay. info, stats and verify\n"
     "work on the result.\n\nExample:\n  specd-replay anonymise trace.mcap -o shared.mcap\n",
     kAnonymiseFlags, &RunAnonymise},
    {"report", "one HTML page: timeline, heat map, text with the reason of each token",
     "  specd-replay report TRACE... -o FILE.html [flags]\n\n"
     "The page needs no network. --top sets the candidates of each row; 0: none.\n\nExample:\n"
     "  specd-replay report trace.mcap -o report.html --tokenizer=tokenizer.json\n",
     kReportFlags, &RunReport},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

const Command* FindCommand(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

absl::StatusOr<int> RunCommand(const Command& command, const CommandOptions& options) {
  const std::vector<Recording>& recordings = options.recordings;
  if (recordings.size() <= 1 || command.run == &RunInfo) return command.run(options);
  const bool writes =
      !options.output.empty() || options.format == "json" || options.format == "svg";
  if (!command.takes_several || writes) return TooMany(recordings);
  int result = kExitError;
  absl::Status nothing;
  for (const Recording& recording : recordings) {
    CommandOptions one = options;
    one.recordings = {recording};
    one.paths = recording.files;
    fmt::print("{}{}\n", &recording == recordings.data() ? "" : "\n",
               options.paint(Colour::kBold, NameOf(recording)));
    const absl::StatusOr<int> exit_code = command.run(one);
    // The filters may pass rounds of another recording.
    if (absl::IsOutOfRange(exit_code.status())) {
      fmt::print("{}\n", SafeText(std::string(exit_code.status().message())));
      nothing.Update(exit_code.status());
      continue;
    }
    if (!exit_code.ok()) return exit_code.status();
    // A difference outranks what could be checked, and that outranks what could not.
    if (*exit_code == kExitDifferent || result == kExitError) result = *exit_code;
  }
  if (result == kExitError && !nothing.ok()) return nothing;
  return result;
}

absl::Status NothingPasses(const CommandOptions& options) {
  const TraceFilter& filter = options.filter;
  std::string flags;
  const auto add = [&flags](bool is_given, std::string_view name, const std::string& value) {
    if (is_given) flags += fmt::format(" --{}{}{}", name, value.empty() ? "" : "=", value);
  };
  add(!filter.request_id.empty(), "request", filter.request_id);
  if (filter.sequence) add(true, "sequence", HandleText(*filter.sequence));
  if (filter.first_round) add(true, "from", fmt::format("{}", *filter.first_round));
  if (filter.last_round) add(true, "to", fmt::format("{}", *filter.last_round));
  if (options.status) add(true, "status", std::string(NameOf(*options.status)));
  add(options.only_rejected, "rejected", "");
  if (flags.empty()) return absl::OutOfRangeError("the trace has no round");
  return absl::OutOfRangeError(fmt::format(
      "nothing passes{}; \"specd-replay list\" and \"list --sequences\" have what is there",
      flags));
}

void PrintWarnings(std::span<const std::string> warnings) {
  std::fflush(stdout);
  for (const std::string& warning : warnings) {
    fmt::print(stderr, "specd-replay: warning: {}\n", SafeText(warning));
  }
}

}  // namespace specd::replay
