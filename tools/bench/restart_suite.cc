// The suite `restart`: how long engines wait when their daemon is killed.
//
// Engines over the C interface have sequences with ids that rounds have kept. The daemon gets
// SIGKILL, and the next one starts at once at the same socket. Each engine submits a round
// meanwhile. Its time ends with the answer: libspecd has noticed, attached and told everything
// again. The time in which a daemon starts is beside it, because nobody can answer earlier.
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <string>
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
constexpr uint32_t kSequences = 64;  // of each engine, as in the goal

// Opens the sequences of an engine, and has rounds keep their ids.
absl::Status StartEngine(const std::string& uri, size_t number, int32_t num_ids, CEngine* engine) {
  specd_options options = CEngine::Options(kVocab, kSequences, kDraft);
  options.reconnect_ms = kReconnectMs;
  SPECD_TRY(engine->Start(uri, options, {.num_rows = kDraft + 1}));
  SPECD_TRY(engine->Open(fmt::format("{}", number), kSequences, CEngine::Params(0)));
  for (int32_t kept = 0; kept < num_ids; kept += kDraft + 1) {
    const int32_t left = std::min(num_ids - kept, kDraft + 1);
    SPECD_TRY(engine->RunRound(static_cast<uint32_t>(left) - 1).status());
  }
  return absl::OkStatus();
}

struct KillTimes {
  Times start_ms;  // of the daemon
  Times first_ms;  // from the kill to the answer of the first engine
  Times last_ms;
};

// Kills the daemon, and has each engine run a round.
absl::Status RunKill(DaemonProcess* daemon, std::vector<CEngine>* engines, KillTimes* times) {
  const SteadyClock::time_point begin = SteadyClock::now();
  daemon->Kill();
  std::vector<std::future<absl::StatusOr<double>>> rounds;
  for (CEngine& engine : *engines) {
    rounds.push_back(std::async(std::launch::async, [&]() -> absl::StatusOr<double> {
      SPECD_TRY(engine.RunRound(0).status());
      return MicrosSince(begin) / 1e3;
    }));
  }
  SPECD_TAKE(times->start_ms.emplace_back(), daemon->Start());
  Times ms;
  for (auto& round : rounds) {
    SPECD_TAKE(ms.emplace_back(), round.get());
  }
  const auto [first, last] = std::ranges::minmax(ms);
  times->first_ms.push_back(first);
  times->last_ms.push_back(last);
  return absl::OkStatus();
}

absl::Status Measure(int32_t num_engines, const Flags& flags, Output* out) {
  const int32_t num_ids = flags.Number("ids");
  const int32_t num_kills = flags.Number("kills");
  DaemonProcess daemon({"--max_sessions=64"});
  SPECD_TRY(daemon.Start().status());
  std::vector<CEngine> engines(static_cast<size_t>(num_engines));
  for (size_t i = 0; i < engines.size(); ++i) {
    SPECD_TRY(StartEngine(daemon.uri(), i, num_ids, &engines[i]));
  }
  KillTimes times;
  const LoadMeter meter;
  for (int32_t i = 0; i < num_kills; ++i) SPECD_TRY(RunKill(&daemon, &engines, &times));
  const double start_ms = Summarise(times.start_ms).median;
  const double last_ms = Summarise(times.last_ms).median;
  const double beside_ms = last_ms - start_ms;
  Line line;
  line.Count("engines", num_engines, 7)
      .Count("sequences", kSequences, 9)
      .Count("ids", num_ids, 5)
      .Number("start ms", 9, 0, start_ms)
      .Number("first ms", 9, 0, Summarise(times.first_ms).median)
      .Number("last ms", 9, 0, last_ms)
      .Cell("last - start", 12, "{:.0f}", beside_ms)
      .Target(
          {.measured = beside_ms, .bound = num_engines == kGoalEngines ? kGoalMs : 0, .unit = "ms"})
      .Count("kills", num_kills, 5)
      .Load(meter.Read());
  out->Print(line);
  return absl::OkStatus();
}

absl::Status RunRestart(const Flags& flags, Output* out) {
  out->Caption(
      "medians, from SIGKILL on: a daemon starts, the first and the last engine have an answer; "
      "the target is for last - start");
  for (const int32_t engines : flags.Numbers("engines")) {
    out->Show(fmt::format("{} engines", engines));
    SPECD_TRY(Measure(engines, flags, out));
  }
  return absl::OkStatus();
}

}  // namespace

Suite RestartCommand() {
  return {.name = "restart",
          .summary = "the time from a daemon's SIGKILL to the answers of the next one",
          .flags = {Flag::Wholes("engines", "engines that are attached", {1, 64}, "1,16"),
                    Flag::Whole("ids", "ids that each sequence has kept", {0, 1'000'000}, "2000",
                                "500"),
                    Flag::Whole("kills", "how often the daemon is killed", {1, 1000}, "5", "2")},
          .run = &RunRestart};
}

}  // namespace specd::bench
