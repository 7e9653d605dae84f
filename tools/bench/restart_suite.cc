// The suite `restart`: how long engines wait when their daemon is killed.
//
// Engines over the C interface have sequences with ids that rounds have kept. The daemon gets
// SIGKILL, and the next one starts at once at the same socket. Each engine submits a round
// meanwhile. Its time ends with the answer: libspecd has noticed, attached and told everything
// again. The time in which a daemon starts is beside it, because nobody can answer earlier.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tools/bench/c_engine.h"
#include "tools/bench/child_process.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr uint32_t kVocab = 512;
constexpr int32_t kDraft = 64;
constexpr uint32_t kReconnectMs = 60'000;
constexpr double kGoalMs = 1000;
constexpr int32_t kGoalEngines = 16;

struct Load {
  int32_t engines = 0;
  int32_t sequences = 0;
  int32_t ids = 0;  // kept, of each sequence
};

// Opens the sequences of an engine, and has rounds keep their ids. Returns the bytes of this
// process for each sequence; right only while no other engine works.
absl::StatusOr<double> StartEngine(const std::string& uri, size_t number, const Load& load,
                                   RepeatingEngine* engine) {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = kVocab;
  options.max_batch = static_cast<uint32_t>(load.sequences);
  options.max_draft = kDraft;
  options.timeout_ms = CEngine::kTimeoutMs;
  options.reconnect_ms = kReconnectMs;
  SPECD_TRY(engine->Start(uri, options));
  const auto before = mallinfo2().uordblks;
  SPECD_TRY(engine->OpenSequences(fmt::format("{}", number), options.max_batch, 0));
  for (int32_t kept = 0; kept < load.ids; kept += kDraft + 1) {
    const int32_t left = std::min(load.ids - kept, kDraft + 1);
    SPECD_TRY(engine->RunRound(static_cast<uint32_t>(left) - 1).status());
  }
  return static_cast<double>(mallinfo2().uordblks - before) / load.sequences;
}

struct KillTimes {
  std::vector<double> start_ms;  // of the daemon
  std::vector<double> first_ms;  // from the kill to the answer of the first engine
  std::vector<double> last_ms;
};

// Kills the daemon, and has each engine run a round.
absl::Status RunKill(DaemonProcess* daemon, std::vector<RepeatingEngine>* engines,
                     KillTimes* times) {
  std::vector<absl::Status> statuses(engines->size());
  std::vector<double> ms(engines->size());
  std::latch ready(static_cast<ptrdiff_t>(engines->size()) + 1);
  SteadyClock::time_point begin;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < engines->size(); ++i) {
    threads.emplace_back([&, i] {
      ready.arrive_and_wait();
      statuses[i] = (*engines)[i].RunRound(0).status();
      ms[i] = MicrosSince(begin) / 1e3;
    });
  }
  begin = SteadyClock::now();
  daemon->Kill();
  ready.arrive_and_wait();
  const absl::StatusOr<double> start_ms = daemon->Start();
  for (std::thread& thread : threads) thread.join();
  if (!start_ms.ok()) return start_ms.status();
  for (const absl::Status& status : statuses) SPECD_TRY(status);
  const auto [first, last] = std::minmax_element(ms.begin(), ms.end());
  times->start_ms.push_back(*start_ms);
  times->first_ms.push_back(*first);
  times->last_ms.push_back(*last);
  return absl::OkStatus();
}

absl::Status Measure(const Load& load, int32_t num_kills, const std::string& program, Output* out) {
  DaemonProcess daemon(program, {"--max_sessions=64"});
  SPECD_TRY(daemon.Start().status());
  std::vector<RepeatingEngine> engines(static_cast<size_t>(load.engines));
  double bytes = 0;
  for (size_t i = 0; i < engines.size(); ++i) {
    SPECD_TAKE(bytes, StartEngine(daemon.uri(), i, load, &engines[i]));
  }
  KillTimes times;
  const LoadMeter meter;
  for (int32_t i = 0; i < num_kills; ++i) {
    SPECD_TRY(RunKill(&daemon, &engines, &times));
  }
  const ForeignLoad foreign = meter.Read();
  const double start_ms = Summarise(times.start_ms).median;
  const double last_ms = Summarise(times.last_ms).median;
  const double beside_ms = last_ms - start_ms;
  Line line;
  line.Count("engines", load.engines, 7)
      .Count("sequences", load.sequences, 9)
      .Count("ids", load.ids, 5)
      .Number("start ms", 9, 0, start_ms)
      .Number("first ms", 9, 0, Summarise(times.first_ms).median)
      .Number("last ms", 9, 0, last_ms)
      .Cell("last - start", 12, "{:.0f}", beside_ms)
      .Target({.measured = beside_ms,
               .bound = load.engines == kGoalEngines ? kGoalMs : 0,
               .unit = "ms"})
      .Number("bytes per sequence", 18, 0, bytes)
      .Count("kills", num_kills, 5);
  out->Print(line.Load(foreign));
  return absl::OkStatus();
}

absl::Status RunRestart(const Flags& flags, Output* out) {
  out->Caption(
      "medians, from SIGKILL on: a daemon starts, the first and the last engine have an answer; "
      "bytes of libspecd for a sequence; the target is for last - start");
  for (const int32_t engines : flags.Numbers("engines")) {
    out->Show(fmt::format("{} engines", engines));
    const Load load = {engines, flags.Number("sequences"), flags.Number("ids")};
    SPECD_TRY(Measure(load, flags.Number("kills"), ProgramOf(flags.Text("specd")), out));
  }
  return absl::OkStatus();
}

}  // namespace

Suite RestartCommand() {
  return {
      .name = "restart",
      .summary = "the time from a daemon's SIGKILL to the answers of the next one",
      .examples = {"--engines=16 --markdown"},
      .flags = {Flag::Wholes("engines", "engines that are attached", {1, 64}, "1,16,64", "1,16"),
                Flag::Whole("sequences", "open sequences of each engine", {1, 1024}, "64"),
                Flag::Whole("ids", "ids that each sequence has kept", {0, 1'000'000}, "2000",
                            "500"),
                Flag::Whole("kills", "how often the daemon is killed", {1, 1000}, "5", "2"),
                {.name = "specd",
                 .help = "the daemon's program; without it the one beside specd-bench"}},
      .run = &RunRestart};
}

}  // namespace specd::bench
