// specctl shows what a daemon does, out of its counters file, and asks it over its socket.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/command_line.h"
#include "daemon/base/version.h"
#include "ipc/counters/counter_snapshot.h"
#include "ipc/counters/open_metrics.h"
#include "kernels/core/nearest_name.h"
#include "tools/specctl/daemon_doctor.h"
#include "tools/specctl/metrics_doc.h"
#include "tools/specctl/operate.h"
#include "tools/specctl/stats_table.h"
#include "tools/terminal/terminal.h"

ABSL_FLAG(std::string, counters, "/run/specd/specd.sock.counters",
          "the daemon's counters file; unless its --counters names another, it lies beside the "
          "socket, with the suffix .counters");
ABSL_FLAG(std::string, specd, "unix:/run/specd/specd.sock",
          "sessions, list, show, abort, abort-all, drain, trace, doctor: the daemon's socket");
ABSL_FLAG(bool, json, false, "print JSON: one object; top: one for each look");
ABSL_FLAG(bool, ids, false, "list: print the request ids alone, one a line");
ABSL_FLAG(uint64_t, stream, 0, "show, abort: the number of a stream, in place of a request id");
ABSL_FLAG(bool, wait, true, "drain: return when the daemon has ended");
ABSL_FLAG(double, interval, 1, "top: seconds between two looks, 0.1 .. 3600");
ABSL_FLAG(uint32_t, count, 0, "top: end after so many tables; 0: go on");

namespace specd::ctl {
namespace {

constexpr char kUsage[] =
    "shows what a specd daemon does, and asks it.\n\n"
    "Over the daemon's socket (--specd=unix:PATH), as root or the daemon's user for all "
    "sequences,\n"
    "as any other user who is served for those of his own engines:\n\n"
    "  specctl sessions         list the engines, with what each has of what it may have\n"
    "  specctl list             list the open sequences (--ids: their request ids alone)\n"
    "  specctl show ID...       print parameters and counters of one (or --stream=N)\n"
    "  specctl abort ID...      end requests (or --stream=N)\n"
    "  specctl abort-all        end every sequence that runs\n"
    "  specctl drain            refuse openings; the daemon ends with the last sequence that runs\n"
    "                           (--wait=false: return at once)\n"
    "  specctl trace            write the trace of each session, with what its recorder has\n"
    "  specctl doctor           the same, and say what is wrong with the drafts, by those "
    "traces\n\n"
    "Out of the counters file (--counters=FILE), for which the daemon need not answer:\n\n"
    "  specctl stats      print all counters as a table, or with --json as an object\n"
    "  specctl top        print those that count, with their rates, once a second (--interval)\n"
    "  specctl metrics    print all counters in the text format of OpenMetrics, for Prometheus\n"
    "  specctl describe   print the meaning of each counter (docs/METRICS.md)\n\n"
    "Examples:\n"
    "  specctl list --json\n"
    "  specctl abort cmpl-17 cmpl-18\n"
    "  specctl stats\n"
    "  specctl stats --counters=/run/specd/other.sock.counters --json\n"
    "  specctl top --interval=0.5 --count=10\n\n"
    "specd-http answers /metrics, /live and /ready over HTTP.\n\n"
    "Exit status: 0; 1 if there is no daemon, or no counters file that can be read (the numbers of "
    "a\n"
    "daemon that was killed are printed all the same); 2 for a wrong command line; 3 if there is "
    "no\n"
    "such sequence, or no trace is recorded; 4 if this user may not. Of doctor: 0 no fault; 1 a "
    "fault "
    "in\n"
    "the drafts of a session; 2 if the traces could not be had or examined.";

constexpr char kClearScreen[] = "\x1b[H\x1b[J";

uint64_t UnixNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

// Whether all that was printed has arrived.
int Finish(const CounterSnapshot& now) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Fail(kExitNoDaemon, "the output could not be written");
  }
  if (now.is_alive) return 0;
  return Fail(kExitNoDaemon,
              fmt::format("the daemon (pid {}) has ended; these are its last numbers", now.pid));
}

int Stats(const std::string& path) {
  const absl::StatusOr<CounterSnapshot> now = ReadCounters(path);
  if (!now.ok()) return Fail(kExitNoDaemon, std::string(now.status().message()));
  if (absl::GetFlag(FLAGS_json)) {
    fmt::print("{}", StatsJson(*now));
  } else {
    fmt::print("{}\n", Headline(*now, UnixNs()));
    PrintStats(*now, Paint(IsColourful(STDOUT_FILENO)), stdout);
  }
  return Finish(*now);
}

int Metrics(const std::string& path) {
  const absl::StatusOr<CounterSnapshot> now = ReadCounters(path);
  if (!now.ok()) return Fail(kExitNoDaemon, std::string(now.status().message()));
  fmt::print("{}", OpenMetrics(*now));
  return Finish(*now);
}

int Top(const std::string& path) {
  using Clock = std::chrono::steady_clock;
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  const Paint paint(IsColourful(STDOUT_FILENO));
  const std::chrono::duration<double> interval(absl::GetFlag(FLAGS_interval));
  absl::StatusOr<CounterSnapshot> before = ReadCounters(path);
  Clock::time_point looked_at = Clock::now();
  for (uint32_t i = 0; before.ok();) {
    std::this_thread::sleep_for(interval);
    absl::StatusOr<CounterSnapshot> now = ReadCounters(path);
    const Clock::time_point looks_at = Clock::now();
    if (!now.ok()) return Fail(kExitNoDaemon, std::string(now.status().message()));
    if (IsSameDaemon(*before, *now)) {
      if (absl::GetFlag(FLAGS_json)) {
        fmt::print("{}", StatsJson(*now));
      } else {
        fmt::print("{}{}\n", is_terminal ? kClearScreen : "", Headline(*now, UnixNs()));
        PrintTop(*before, *now, std::chrono::duration<double>(looks_at - looked_at).count(), paint,
                 stdout);
        if (!is_terminal) fmt::print("\n");
      }
      const bool is_last = ++i == absl::GetFlag(FLAGS_count);
      if (is_last || !now->is_alive || std::fflush(stdout) != 0) return Finish(*now);
    }
    before = std::move(now);
    looked_at = looks_at;
  }
  return Fail(kExitNoDaemon, std::string(before.status().message()));
}

int Describe(const std::string&) {
  fmt::print("{}", MetricsDoc());
  return std::fflush(stdout) == 0 ? 0 : kExitNoDaemon;
}

struct CounterCommand {
  std::string_view name;
  int (*run)(const std::string& path);
};
constexpr CounterCommand kCounterCommands[] = {{"stats", &Stats},
                                               {"top", &Top},
                                               {"metrics", &Metrics},

                                               {"describe", &Describe}};

struct DaemonCommand {
  std::string_view name;
  int (*run)(const OperateOptions& options);
  bool takes_ids = false;
};
constexpr DaemonCommand kDaemonCommands[] = {{"sessions", &Sessions},  {"list", &List},
                                             {"show", &Show, true},    {"abort", &Abort, true},
                                             {"abort-all", &AbortAll}, {"drain", &Drain},
                                             {"trace", &DumpTraces},   {"doctor", &DiagnoseDaemon}};

constexpr std::string_view kAllCommands[] = {"sessions",  "list",  "show",    "abort",
                                             "abort-all", "drain", "trace",   "doctor",
                                             "stats",     "top",   "metrics", "describe"};

// fmt::print throws if stdout takes no more.
template <class Run>
int OrFailed(int status, const Run& run) {
  try {
    return run();
  } catch (const std::system_error& error) {
    return Fail(status, fmt::format("the output could not be written: {}", error.what()));
  }
}

int RunDaemonCommand(const DaemonCommand& command, const std::vector<char*>& words) {
  OperateOptions options{.socket = {},
                         .json = absl::GetFlag(FLAGS_json),
                         .ids = absl::GetFlag(FLAGS_ids),
                         .stream = absl::GetFlag(FLAGS_stream),
                         .request_ids = {words.begin() + 2, words.end()},
                         .wait = absl::GetFlag(FLAGS_wait)};
  constexpr std::string_view kScheme = "unix:";
  const std::string uri = absl::GetFlag(FLAGS_specd);
  if (!std::string_view(uri).starts_with(kScheme) || uri.size() == kScheme.size()) {
    return Fail(kExitBadCommandLine, fmt::format("specd = {} is not unix:/path/to/socket", uri));
  }
  options.socket = uri.substr(kScheme.size());
  if (command.takes_ids && options.request_ids.empty() && options.stream == 0) {
    return Fail(kExitBadCommandLine, fmt::format("{} needs a request id, or --stream=N; specctl "
                                                 "list prints both",
                                                 command.name));
  }
  return OrFailed(command.run == &DiagnoseDaemon ? kExitDoctorError : kExitNoDaemon,
                  [&] { return command.run(options); });
}

int Main(int argc, char** argv) {
  const std::vector<char*> words = ParseFlags(
      argc, argv,
      {.usage = kUsage, .source = "tools/specctl/", .version = std::string("specctl ") + kVersion});
  if (words.size() < 2) {
    return Fail(kExitBadCommandLine, fmt::format("a command is missing: {}; see specctl --help",
                                                 fmt::join(kAllCommands, ", ")));
  }
  const auto* const asks =
      std::find_if(std::begin(kDaemonCommands), std::end(kDaemonCommands),
                   [&words](const DaemonCommand& command) { return command.name == words[1]; });
  const bool is_asking = asks != std::end(kDaemonCommands);
  if (words.size() > 2 && !(is_asking && asks->takes_ids)) {
    return Fail(kExitBadCommandLine,
                fmt::format("unexpected argument {}; flags begin with --", words[2]));
  }
  if (is_asking) return RunDaemonCommand(*asks, words);
  const double interval = absl::GetFlag(FLAGS_interval);
  if (!(interval >= 0.1 && interval <= 3600)) {
    return Fail(kExitBadCommandLine,
                fmt::format("interval = {} is outside 0.1 .. 3600 seconds", interval));
  }
  for (const CounterCommand& command : kCounterCommands) {
    if (command.name != words[1]) continue;
    return OrFailed(kExitNoDaemon, [&] { return command.run(absl::GetFlag(FLAGS_counters)); });
  }
  return Fail(kExitBadCommandLine,
              fmt::format("command {} is unknown{}; use {}", words[1],
                          DidYouMean(words[1], kAllCommands), fmt::join(kAllCommands, ", ")));
}

}  // namespace
}  // namespace specd::ctl

int main(int argc, char** argv) { return specd::ctl::Main(argc, argv); }
