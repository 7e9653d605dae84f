// specctl shows what a daemon does, out of its counters file.

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/command_line.h"
#include "daemon/base/version.h"
#include "ipc/counters/counter_snapshot.h"
#include "ipc/counters/open_metrics.h"
#include "tools/specctl/metrics_doc.h"
#include "tools/specctl/stats_table.h"
#include "tools/terminal/terminal.h"

ABSL_FLAG(std::string, counters, "/run/specd/specd.sock.counters",
          "the daemon's counters file; unless its --counters names another, it lies beside the "
          "socket, with the suffix .counters");
ABSL_FLAG(bool, json, false, "stats: print one JSON object");
ABSL_FLAG(double, interval, 1, "top: seconds between two looks, 0.1 .. 3600");
ABSL_FLAG(uint32_t, count, 0, "top: end after so many tables; 0: go on");

namespace specd::ctl {
namespace {

constexpr char kUsage[] =
    "shows what a specd daemon does, out of its counters file. The daemon need not answer.\n\n"
    "  specctl stats      print all counters as a table, or with --json as an object\n"
    "  specctl top        print those that count, with their rates, once a second (--interval)\n"
    "  specctl metrics    print all counters in the text format of OpenMetrics, for Prometheus\n"
    "  specctl describe   print the meaning of each counter (docs/METRICS.md)\n\n"
    "Examples:\n"
    "  specctl stats\n"
    "  specctl stats --counters=/run/specd/other.sock.counters --json\n"
    "  specctl top --interval=0.5 --count=10\n\n"
    "specd-http answers /metrics, /live and /ready over HTTP.\n\n"
    "Exit status: 0; 1 if there is no daemon, or no counters file that can be read (the numbers of "
    "a\n"
    "daemon that was killed are printed all the same); 2 for a wrong command line.";

constexpr int kExitNoDaemon = 1;
constexpr char kClearScreen[] = "\x1b[H\x1b[J";

int Fail(int code, std::string_view message) {
  std::fflush(stdout);
  fmt::print(stderr, "specctl: {}\n", SafeText(message));
  return code;
}

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
      fmt::print("{}{}\n", is_terminal ? kClearScreen : "", Headline(*now, UnixNs()));
      PrintTop(*before, *now, std::chrono::duration<double>(looks_at - looked_at).count(), paint,
               stdout);
      if (!is_terminal) fmt::print("\n");
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

struct Command {
  std::string_view name;
  int (*run)(const std::string& path);
};
constexpr Command kCommands[] = {
    {"stats", &Stats}, {"top", &Top}, {"metrics", &Metrics}, {"describe", &Describe}};

int Main(int argc, char** argv) {
  const std::vector<char*> words = ParseFlags(
      argc, argv,
      {.usage = kUsage, .source = "tools/specctl/", .version = std::string("specctl ") + kVersion});
  if (words.size() < 2) {
    return Fail(kExitBadCommandLine,
                "a command is missing: stats, top, metrics or describe; see "
                "specctl --help");
  }
  if (words.size() > 2) {
    return Fail(kExitBadCommandLine,
                fmt::format("unexpected argument {}; flags begin with --", words[2]));
  }
  const double interval = absl::GetFlag(FLAGS_interval);
  if (!(interval >= 0.1 && interval <= 3600)) {
    return Fail(kExitBadCommandLine,
                fmt::format("interval = {} is outside 0.1 .. 3600 seconds", interval));
  }
  for (const Command& command : kCommands) {
    if (command.name == words[1]) return command.run(absl::GetFlag(FLAGS_counters));
  }
  return Fail(kExitBadCommandLine,
              fmt::format("command {} is unknown; use stats, top, metrics or describe", words[1]));
}

}  // namespace
}  // namespace specd::ctl

int main(int argc, char** argv) { return specd::ctl::Main(argc, argv); }
