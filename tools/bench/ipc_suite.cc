// The suite `ipc`: what another process adds to the rounds of an engine.
//
// The same rounds run embedded and attached, in blocks by turns, so that a disturbance of the
// machine disturbs both. Before each round the engine computes for a while, as a forward pass
// would. Engine and daemon have a CPU each; the suite pins its thread.
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
#include "tools/bench/machine.h"
#include "tools/bench/rows.h"
#include "tools/bench/suite.h"

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
    absl::Status status = engine_.Open(uri, options);
    if (status.ok()) status = BindRows(round);
    if (!status.ok()) return status;
    specd_params params;
    specd_params_init(&params);
    params.temperature = 0.8;
    params.has_seed = 1;
    params.seed = 1;
    params.max_tokens = std::numeric_limits<int32_t>::max();
    const absl::StatusOr<specd_sequence_info> info = engine_.OpenSequence("bench", params);
    if (!info.ok()) return info.status();
    specd_draft& part = parts_.emplace_back();
    part.struct_size = sizeof(part);
    part.sequence = info->sequence;
    part.num_nodes = static_cast<uint32_t>(round.num_draft);
    part.tokens = drafts_.data();
    part.target_rows = rows_.data();
    return absl::OkStatus();
  }

  // Adds the times of the rounds but the first two.
  absl::Status RunBlock(int32_t gap_us, std::vector<double>* times_us) {
    for (int i = 0; i < kBlockWarmUp + kBlockRounds; ++i) {
      const SteadyClock::time_point end = SteadyClock::now() + std::chrono::microseconds(gap_us);
      while (SteadyClock::now() < end) {
      }
      specd_completion done;
      const absl::StatusOr<double> time_us = engine_.RunRound(parts_, &done);
      if (!time_us.ok()) return time_us.status();
      for (uint32_t k = 0; k < done.results[0].num_kept; ++k) {
        digest_ = (digest_ ^ static_cast<uint64_t>(done.results[0].tokens[k])) * 0x100000001b3;
      }
      if (i >= kBlockWarmUp) times_us->push_back(*time_us);
    }
    return absl::OkStatus();
  }

  // A number that the kept ids of all rounds determine.
  uint64_t digest() const { return digest_; }
  uint64_t num_rounds() const { return engine_.num_rounds(); }

 private:
  absl::Status BindRows(const Round& round) {
    const int64_t num_rows = int64_t{round.num_draft} + 1;
    const absl::StatusOr<RowPool> pool =
        RowPool::Make({.vocab_size = round.vocab_size, .num_rows = num_rows});
    if (!pool.ok()) return pool.status();
    const absl::StatusOr<float*> rows =
        engine_.Bind(SPECD_TARGET_ROWS, static_cast<uint32_t>(num_rows),
                     static_cast<uint32_t>(round.vocab_size));
    if (!rows.ok()) return rows.status();
    for (int64_t i = 0; i < num_rows; ++i) {
      std::memcpy(*rows + i * round.vocab_size, RowAt(pool->view(), i).data,
                  static_cast<size_t>(pool->row_bytes()));
      drafts_.push_back(pool->best_id(i));
    }
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
  const auto times = [](const Summary& s) {
    return fmt::format("{:.1f} / {:.1f} / {:.1f}", s.median, s.p90, s.p99);
  };
  Line line;
  line.Name("case", what.name, 12)
      .Count("vocab", round.vocab_size, 6)
      .Count("draft", round.num_draft, 5)
      .Cell("gap us", 6, "{}", round.gap_us)
      .Json("gap_us", round.gap_us)
      .Cell("embedded us", 23, "{}", times(embedded))
      .Cell("attached us", 23, "{}", times(attached))
      .Cell("added p50", 9, "{:.1f}", added_p50)
      .Cell("added p90", 9, "{:.1f}", added_p90)
      .CellIf(what.target_p50_us > 0, "target", 6, is_met ? "met" : "missed")
      .Count("rounds", attached.num_samples, 6);
  for (const auto& [side, s] : {std::pair("embedded", embedded), std::pair("attached", attached)}) {
    line.Json(fmt::format("{}_p50_us", side), s.median)
        .Json(fmt::format("{}_p90_us", side), s.p90)
        .Json(fmt::format("{}_p99_us", side), s.p99);
  }
  return line.Json("added_p50_us", added_p50).Json("added_p90_us", added_p90);
}

absl::Status Measure(const IpcCase& what, const Round& round, double seconds,
                     const DaemonProcess& daemon, Output* out) {
  Player embedded;
  Player attached;
  absl::Status status = embedded.Start("embedded:cpu", round, what.spin_us);
  if (status.ok()) status = attached.Start(daemon.uri(), round, what.spin_us);
  if (!status.ok()) return status;
  std::vector<double> embedded_us;
  std::vector<double> attached_us;
  const LoadMeter meter;
  status = Repeat({seconds, kLeastBlocks, kMostBlocks}, [&](size_t) {
    const absl::Status block = embedded.RunBlock(round.gap_us, &embedded_us);
    return block.ok() ? attached.RunBlock(round.gap_us, &attached_us) : block;
  });
  if (!status.ok()) return status;
  const ForeignLoad load = meter.Read();
  if (embedded.digest() != attached.digest()) {
    return absl::InternalError(
        fmt::format("after {} rounds the attached engine has other ids than the embedded one",
                    embedded.num_rounds()));
  }
  out->Print(
      LineOf(what, round, Summarise(std::move(embedded_us)), Summarise(std::move(attached_us)))
          .Load(load));
  return absl::OkStatus();
}

absl::Status RunIpc(const Flags& flags, Output* out) {
  const Machine machine = ReadMachine();
  const std::vector<int> cpus = UsableCpus();
  if (cpus.size() < 2) {
    return absl::ResourceExhaustedError("engine and daemon need a CPU each, and there is one");
  }
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(cpus[0], &own);
  if (sched_setaffinity(0, sizeof(own), &own) != 0) {
    return absl::InternalError("this process cannot be pinned to a CPU");
  }
  out->Begin(machine.processor, Describe(machine, 1));
  out->Caption(
      "times of a round in us: p50 / p90 / p99; the target of added_spin is 2 us at p50 and 5 us "
      "at "
      "p90");
  for (const IpcCase* const what : Chosen(flags, kCases)) {
    const auto daemon =
        DaemonProcess::Start(DaemonProgram(flags.Text("specd")), cpus[1], what->spin_us);
    if (!daemon.ok()) return daemon.status();
    for (const int32_t vocab_size : flags.Numbers("vocab")) {
      for (const int32_t draft : flags.Numbers("draft")) {
        for (const int32_t gap_us : flags.Numbers("gap")) {
          out->Show(fmt::format("{}: vocabulary {}, {} drafts, {} us between rounds", what->name,
                                vocab_size, draft, gap_us));
          const absl::Status status =
              Measure(*what, {vocab_size, draft, gap_us}, flags.Real("seconds"), **daemon, out);
          if (!status.ok()) return status;
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

Suite IpcCommand() {
  using Kind = Flag::Kind;
  return {.name = "ipc",
          .summary = "rounds of an engine that is attached to a daemon beside embedded rounds",
          .examples = {"--case=added_spin --vocab=32000"},
          .cases = WordsOf(kCases),
          .seconds = "5",
          .quick_seconds = "1",
          .flags = {{.name = "vocab",
                     .kind = Kind::kWhole,
                     .help = "vocabulary sizes",
                     .usual = "2048,32000",
                     .minimum = 1,
                     .maximum = kVocabSizeMax,
                     .is_list = true},
                    {.name = "draft",
                     .kind = Kind::kWhole,
                     .help = "draft tokens of a sequence",
                     .usual = "0,5",
                     .maximum = 64,
                     .is_list = true},
                    {.name = "gap",
                     .kind = Kind::kWhole,
                     .help = "us between two rounds of the engine",
                     .usual = "0,200,1500",
                     .maximum = 100'000,
                     .is_list = true},
                    {.name = "specd",
                     .help = "the daemon's program; without it the one beside specd-bench"}},
          .run = &RunIpc};
}

}  // namespace specd::bench
