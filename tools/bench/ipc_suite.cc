// The suite `ipc`: what another process adds to the rounds of an engine.
//
// The same rounds run embedded and attached, in blocks by turns. Before each round the engine
// computes for a while, as a forward pass would. Engine and daemon have a CPU each; the suite pins
// its thread.
#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/c_engine.h"
#include "tools/bench/child_process.h"
#include "tools/bench/rows.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

struct IpcCase {
  std::string_view name;
  std::string_view summary;
  int32_t spin_us;  // of engine and daemon
  // The most that may be added, in us; 0: no target.
  double target_p50_us;
  double target_p90_us;
};
// A daemon looks for rounds across the blocks of the embedded engine.
constexpr int32_t kSpinUs = 200'000;
constexpr IpcCase kCases[] = {
    {"added_asleep", "both sides sleep while they wait", 0, 0, 0},
    {"added_spin", "both sides look for each other's words while they wait", kSpinUs, 2, 5},
};
constexpr int kBlockRounds = 16;
constexpr int kBlockWarmUp = 2;
constexpr size_t kLeastBlocks = 13;  // more than 200 rounds
constexpr size_t kMostBlocks = 12'500;

struct Round {
  int32_t vocab_size = 0;
  int32_t num_draft = 0;
  int32_t gap_us = 0;
};

// An engine that plays rounds of one sequence.
class Player {
 public:
  absl::Status Start(const std::string& uri, const Round& round, int32_t spin_us) {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = static_cast<uint32_t>(round.vocab_size);
    options.max_batch = 1;
    options.max_draft = static_cast<uint32_t>(round.num_draft);
    if (uri.starts_with("embedded:")) options.threads = 1;
    options.timeout_ms = CEngine::kTimeoutMs;
    options.spin_us = spin_us;
    SPECD_TRY(engine_.Open(uri, options));
    SPECD_TRY(BindRows(round));
    specd_params params;
    specd_params_init(&params);
    params.temperature = 0.8;
    params.has_seed = 1;
    params.seed = 1;
    params.max_tokens = std::numeric_limits<int32_t>::max();
    SPECD_TAKE(const specd_sequence_info info, engine_.OpenSequence("bench", params));
    specd_draft& part = parts_.emplace_back();
    part.struct_size = sizeof(part);
    part.sequence = info.sequence;
    part.num_nodes = static_cast<uint32_t>(round.num_draft);
    part.tokens = drafts_.data();
    part.target_rows = rows_.data();
    return absl::OkStatus();
  }

  // Adds the times of the rounds but the first two.
  absl::Status RunBlock(int32_t gap_us, Times* times_us) {
    for (int i = 0; i < kBlockWarmUp + kBlockRounds; ++i) {
      const SteadyClock::time_point end = SteadyClock::now() + std::chrono::microseconds(gap_us);
      while (SteadyClock::now() < end) {
      }
      specd_completion done;
      SPECD_TAKE(const double time_us, engine_.RunRound(parts_, &done));
      for (uint32_t k = 0; k < done.results[0].num_kept; ++k) {
        digest_ = (digest_ ^ static_cast<uint64_t>(done.results[0].tokens[k])) * 0x100000001b3;
      }
      if (i >= kBlockWarmUp) times_us->push_back(time_us);
    }
    return absl::OkStatus();
  }

  // A number that the kept ids of all rounds determine.
  uint64_t digest() const { return digest_; }
  uint64_t num_rounds() const { return engine_.num_rounds(); }

 private:
  absl::Status BindRows(const Round& round) {
    const int64_t num_rows = int64_t{round.num_draft} + 1;
    SPECD_TAKE(const RowPool pool,
               RowPool::Make({.vocab_size = round.vocab_size, .num_rows = num_rows}));
    SPECD_TAKE(float* const rows, engine_.Bind(SPECD_TARGET_ROWS, static_cast<uint32_t>(num_rows),
                                               static_cast<uint32_t>(round.vocab_size)));
    std::memcpy(rows, pool.view().data, static_cast<size_t>(num_rows * pool.row_bytes()));
    for (int64_t i = 0; i < num_rows; ++i) drafts_.push_back(pool.best_id(i));
    rows_.resize(static_cast<size_t>(num_rows));
    std::iota(rows_.begin(), rows_.end(), 0);
    return absl::OkStatus();
  }

  CEngine engine_;
  std::vector<int32_t> drafts_;
  std::vector<uint32_t> rows_;
  std::vector<specd_draft> parts_;
  uint64_t digest_ = 0;
};

Line LineOf(const IpcCase& what, const Round& round, const Summary& embedded,
            const Summary& attached) {
  const double added_p50 = attached.median - embedded.median;
  const double added_p90 = attached.p90 - embedded.p90;
  const bool is_met = added_p50 <= what.target_p50_us && added_p90 <= what.target_p90_us;
  Line line;
  line.Name("case", what.name, 12)
      .Count("vocab", round.vocab_size, 6)
      .Count("draft", round.num_draft, 5)
      .Value("gap us", "gap_us", 6, "{}", round.gap_us);
  for (const auto& [side, s] : {std::pair("embedded", embedded), std::pair("attached", attached)}) {
    line.Cell(side == std::string_view("embedded") ? "embedded us" : "attached us", 23,
              "{:.1f} / {:.1f} / {:.1f}", s.median, s.p90, s.p99)
        .Json(fmt::format("{}_p50_us", side), s.median)
        .Json(fmt::format("{}_p90_us", side), s.p90)
        .Json(fmt::format("{}_p99_us", side), s.p99);
  }
  return line.Value("added p50", "added_p50_us", 9, "{:.1f}", added_p50)
      .Value("added p90", "added_p90_us", 9, "{:.1f}", added_p90)
      .CellIf(what.target_p50_us > 0, "target", 6, is_met ? "met" : "missed")
      .Count("rounds", attached.num_samples, 6);
}

absl::Status Measure(const IpcCase& what, const Round& round, double seconds,
                     const DaemonProcess& daemon, Output* out) {
  Player players[2];
  SPECD_TRY(players[0].Start("embedded:cpu", round, what.spin_us));
  SPECD_TRY(players[1].Start(daemon.uri(), round, what.spin_us));
  std::vector<Side> sides(2);
  for (size_t i = 0; i < 2; ++i) {
    sides[i].turn = [&, i](Times* times_us) { return players[i].RunBlock(round.gap_us, times_us); };
  }
  SPECD_TAKE(const ForeignLoad load, TakeTurns({seconds, kLeastBlocks, kMostBlocks}, 0, &sides));
  if (players[0].digest() != players[1].digest()) {
    return absl::InternalError(
        fmt::format("after {} rounds the attached engine has other ids than the embedded one",
                    players[0].num_rounds()));
  }
  out->Print(
      LineOf(what, round, Summarise(sides[0].times_us), Summarise(sides[1].times_us)).Load(load));
  return absl::OkStatus();
}

absl::Status RunIpc(const Flags& flags, Output* out) {
  const std::vector<int> cpus = UsableCpus();
  if (cpus.size() < 2) {
    return absl::ResourceExhaustedError("engine and daemon need a CPU each, and there is one");
  }
  const Machine machine = ReadMachine();
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(cpus[0], &own);
  if (sched_setaffinity(0, sizeof(own), &own) != 0) {
    return absl::InternalError("this process cannot be pinned to a CPU");
  }
  out->Begin(machine.processor, Describe(machine, 1));
  out->Caption(
      "times of a round in us: p50 / p90 / p99; the target of added_spin is 2 us at p50 and 5 us "
      "at p90");
  for (const IpcCase* const what : Chosen(flags, kCases)) {
    DaemonProcess daemon(ProgramOf(flags.Text("specd"), "specd"),
                         {fmt::format("--spin_us={}", what->spin_us)}, cpus[1]);
    SPECD_TRY(daemon.Start().status());
    for (const int32_t vocab_size : flags.Numbers("vocab")) {
      for (const int32_t draft : flags.Numbers("draft")) {
        for (const int32_t gap_us : flags.Numbers("gap")) {
          out->Show(fmt::format("{}: vocabulary {}, {} drafts, {} us between rounds", what->name,
                                vocab_size, draft, gap_us));
          SPECD_TRY(
              Measure(*what, {vocab_size, draft, gap_us}, flags.Real("seconds"), daemon, out));
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

Suite IpcCommand() {
  return {.name = "ipc",
          .summary = "rounds of an engine that is attached to a daemon beside embedded rounds",
          .examples = {"--case=added_spin --vocab=32000"},
          .cases = WordsOf(kCases),
          .seconds = "5",
          .quick_seconds = "1",
          .flags = {Flag::Wholes("vocab", "vocabulary sizes", {1, kVocabSizeMax}, "2048,32000"),
                    Flag::Wholes("draft", "draft tokens of a sequence", {0, 64}, "0,5"),
                    Flag::Wholes("gap", "us between two rounds of the engine", {0, 100'000},
                                 "0,200,1500"),
                    {.name = "specd",
                     .help = "the daemon's program; without it the one beside specd-bench"}},
          .run = &RunIpc};
}

}  // namespace specd::bench
