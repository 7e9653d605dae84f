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
#include "tools/bench/machine.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr uint32_t kVocab = 512;
constexpr uint32_t kDraft = 64;
constexpr int32_t kBest = 7;  // the one token of all texts
constexpr uint32_t kReconnectMs = 60'000;
constexpr double kGoalMs = 1000;
constexpr int32_t kGoalEngines = 16;

struct Load {
  int32_t engines = 0;
  int32_t sequences = 0;
  int32_t ids = 0;  // kept, of each sequence
};

// An engine whose sequences all say one token for ever. Each draft of it is accepted.
class Writer {
 public:
  absl::Status Start(const std::string& uri, int32_t number, const Load& load) {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.max_batch = static_cast<uint32_t>(load.sequences);
    options.max_draft = kDraft;
    options.timeout_ms = CEngine::kTimeoutMs;
    options.reconnect_ms = kReconnectMs;
    SPECD_TRY(engine_.Open(uri, options));
    SPECD_TAKE(float* const row, engine_.Bind(SPECD_TARGET_ROWS, 1, kVocab));
    row[kBest] = 50;
    specd_params params;
    specd_params_init(&params);
    params.temperature = 0;
    params.max_tokens = 1u << 30;
    const auto before = mallinfo2().uordblks;
    for (int32_t i = 0; i < load.sequences; ++i) {
      SPECD_TAKE(const auto info, engine_.OpenSequence(fmt::format("{}.{}", number, i), params));
      specd_draft& part = parts_.emplace_back();
      part.struct_size = sizeof(part);
      part.sequence = info.sequence;
      part.tokens = tokens_.data();
      part.target_rows = rows_.data();
    }
    for (int32_t kept = 0; kept < load.ids; kept += static_cast<int32_t>(kDraft) + 1) {
      const int32_t left = std::min(load.ids - kept, static_cast<int32_t>(kDraft) + 1);
      SPECD_TRY(RunRound(static_cast<uint32_t>(left) - 1));
    }
    bytes_ = static_cast<double>(mallinfo2().uordblks - before) / load.sequences;
    return absl::OkStatus();
  }

  absl::Status RunRound(uint32_t num_nodes) {
    for (specd_draft& part : parts_) part.num_nodes = num_nodes;
    specd_completion done;
    return engine_.RunRound(parts_, &done).status();
  }
  // Of this process, for each sequence; only while no other engine works.
  double bytes() const { return bytes_; }

 private:
  CEngine engine_;
  const std::vector<int32_t> tokens_ = std::vector<int32_t>(kDraft, kBest);
  const std::vector<uint32_t> rows_ = std::vector<uint32_t>(kDraft + 1, 0);
  std::vector<specd_draft> parts_;
  double bytes_ = 0;
};

struct KillTimes {
  std::vector<double> start_ms;  // of the daemon
  std::vector<double> first_ms;  // from the kill to the answer of the first engine
  std::vector<double> last_ms;
};

// Kills the daemon, and has each engine run a round.
absl::Status RunKill(DaemonProcess* daemon, std::vector<Writer>* writers, KillTimes* times) {
  std::vector<absl::Status> statuses(writers->size());
  std::vector<double> ms(writers->size());
  std::latch ready(static_cast<ptrdiff_t>(writers->size()) + 1);
  SteadyClock::time_point begin;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < writers->size(); ++i) {
    threads.emplace_back([&, i] {
      ready.arrive_and_wait();
      statuses[i] = (*writers)[i].RunRound(0);
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
  std::vector<Writer> writers(static_cast<size_t>(load.engines));
  for (size_t i = 0; i < writers.size(); ++i) {
    SPECD_TRY(writers[i].Start(daemon.uri(), static_cast<int32_t>(i), load));
  }
  KillTimes times;
  const LoadMeter meter;
  for (int32_t i = 0; i < num_kills; ++i) {
    SPECD_TRY(RunKill(&daemon, &writers, &times));
  }
  const ForeignLoad foreign = meter.Read();
  const double start_ms = Summarise(times.start_ms).median;
  const double last_ms = Summarise(times.last_ms).median;
  const double beside_ms = last_ms - start_ms;
  Line line;
  line.Count("engines", load.engines, 7)
      .Count("sequences", load.sequences, 9)
      .Count("ids", load.ids, 5)
      .Cell("start ms", 9, "{:.0f}", start_ms)
      .Cell("first ms", 9, "{:.0f}", Summarise(times.first_ms).median)
      .Cell("last ms", 9, "{:.0f}", last_ms)
      .Cell("last - start", 12, "{:.0f}", beside_ms)
      .CellIf(load.engines == kGoalEngines, "target", 6, beside_ms < kGoalMs ? "met" : "missed")
      .Cell("bytes a sequence", 16, "{:.0f}", writers.front().bytes())
      .Count("kills", num_kills, 5)
      .Json("start_ms", start_ms)
      .Json("first_ms", Summarise(times.first_ms).median)
      .Json("last_ms", last_ms)
      .Json("bytes_per_sequence", writers.front().bytes());
  out->Print(line.Load(foreign));
  return absl::OkStatus();
}

absl::Status RunRestart(const Flags& flags, Output* out) {
  const Machine machine = ReadMachine();
  out->Begin(machine.processor, Describe(machine, machine.usable_cpus));
  out->Caption(
      "medians, from SIGKILL on: a daemon starts, the first and the last engine have an answer; "
      "bytes of libspecd for a sequence; the target of 16 engines is 1000 ms beside the start");
  for (const int32_t engines : flags.Numbers("engines")) {
    out->Show(fmt::format("{} engines", engines));
    const Load load = {engines, flags.Number("sequences"), flags.Number("ids")};
    SPECD_TRY(Measure(load, flags.Number("kills"), ProgramOf(flags.Text("specd"), "specd"), out));
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
