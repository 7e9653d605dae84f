#include "tools/bench/verify_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "kernels/core/check.h"
#include "tools/bench/llama_loop.h"
#include "tools/bench/peer.h"
#include "tools/bench/read_floor.h"
#include "tools/bench/round_check.h"
#include "tools/bench/steady_clock.h"
#include "tools/bench/textbook.h"
#include "tools/bench/timing.h"

namespace specd::bench {
namespace {

// Elements that a check may compute again: half a second of std::exp and sorting.
constexpr int64_t kCheckedElementsMax = 8'000'000;
// Pairs of samples: enough for a median, and a bound on the kept times of very short rounds.
constexpr size_t kPairsMin = 5;
constexpr size_t kPairsMax = 200'000;

double ToMicroseconds(SteadyClock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

bool Supports(Baseline baseline, const VerifyCase& verify_case, DType dtype) {
  if (baseline == Baseline::kRead) return true;
  if (baseline == Baseline::kLlama && dtype != DType::kFloat32) return false;
  return TextbookSampler::Supports(verify_case);
}

// Null if the baseline is a read.
std::unique_ptr<Peer> MakePeer(Baseline baseline, const RoundSet& set) {
  if (baseline == Baseline::kRead) return nullptr;
  if (baseline == Baseline::kTextbook) return std::make_unique<TextbookSampler>(set);
  std::unique_ptr<Peer> llama = MakeLlamaLoop(set);
  SPECD_CHECK(llama != nullptr);
  return llama;
}

// The ratio that the design asks for, if it asks for one.
double TargetOf(const VerifyCase& verify_case, Baseline baseline, const Measurement& measurement,
                const Machine& machine) {
  if (measurement.vocab_size != 128256 || measurement.draft != 5 ||
      measurement.rows != RowShapeName(RowShape::kLlm)) {
    return 0;
  }
  if (baseline == Baseline::kLlama) {
    const bool asked = measurement.batch == 1 && !measurement.cold && measurement.threads == 1;
    return asked ? verify_case.target_llama : 0;
  }
  const bool asked = baseline == Baseline::kRead && measurement.batch == 32 && measurement.cold &&
                     measurement.threads == machine.usable_cpus;
  if (!asked) return 0;
  return measurement.dtype == DType::kFloat32 ? verify_case.target_fp32 : verify_case.target_bf16;
}

// True if a round gave its first answer again. Places after the last token hold nothing.
bool IsSameAnswer(const RoundAnswer& a, const RoundAnswer& b, int32_t stride) {
  for (size_t s = 0; s < a.outcomes.size(); ++s) {
    const TaskOutcome& x = a.outcomes[s];
    const TaskOutcome& y = b.outcomes[s];
    if (x.status != y.status || x.num_accepted != y.num_accepted || x.num_tokens != y.num_tokens) {
      return false;
    }
    const auto first = static_cast<std::ptrdiff_t>(s) * stride;
    if (!std::equal(a.tokens.begin() + first, a.tokens.begin() + first + x.num_tokens,
                    b.tokens.begin() + first)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string_view BaselineName(Baseline baseline) {
  switch (baseline) {
    case Baseline::kRead:
      return "read";
    case Baseline::kTextbook:
      return "textbook";
    case Baseline::kLlama:
      return "llama";
  }
  return "unknown";
}

std::vector<Cell> CellsOf(const VerifyOptions& options,
                          absl::FunctionRef<bool(const VerifyCase&, DType)> supports) {
  std::vector<Cell> cells;
  for (const int32_t vocab_size : options.vocab_sizes) {
    for (const DType dtype : options.dtypes) {
      for (const int32_t batch : options.batches) {
        for (const int32_t draft : options.drafts) {
          for (const VerifyCase* verify_case : options.cases) {
            if (draft == 0 && HasDraftRows(*verify_case)) continue;
            if (!supports(*verify_case, dtype)) continue;
            cells.push_back({verify_case, dtype, vocab_size, {.batch = batch, .draft = draft}});
          }
        }
      }
    }
  }
  return cells;
}

std::vector<Cell> VerifySuite::Cells() const {
  std::vector<Cell> cells = CellsOf(options_, [this](const VerifyCase& verify_case, DType dtype) {
    return Supports(options_.baseline, verify_case, dtype);
  });
  for (Cell& cell : cells) cell.shape.num_rounds = NumRounds(cell);
  return cells;
}

int64_t VerifySuite::num_measurements() const { return static_cast<int64_t>(Cells().size()); }

// In a cold measurement at least twice the last-level cache is read between two visits of a round.
// The number is odd, so that floor and case, taken in turn, both come to every round.
int32_t VerifySuite::NumRounds(const Cell& cell) const {
  if (!options_.cold) return 1;
  const int64_t round_bytes = cell.round_bytes();
  const int64_t between = (2 * machine_.last_level_bytes + round_bytes - 1) / round_bytes;
  return static_cast<int32_t>(std::max<int64_t>(between + 1, 3) | 1);
}

absl::Status VerifySuite::Run() {
  num_done_ = 0;
  for (const Cell& cell : Cells()) {
    if (absl::Status status = RunCell(cell); !status.ok()) return status;
    ++num_done_;
  }
  return absl::OkStatus();
}

absl::Status VerifySuite::RunCell(const Cell& cell) {
  const VerifyCase& verify_case = *cell.verify_case;
  hooks_.on_progress(fmt::format("[{}/{}] {}", num_done_ + 1, num_measurements(), Describe(cell)));
  const absl::StatusOr<Pools> pools = pools_.For(cell);
  if (!pools.ok()) return pools.status();

  absl::StatusOr<std::unique_ptr<Backend>> backend = hooks_.make_backend();
  if (!backend.ok()) return backend.status();
  absl::Status status = (*backend)->Prepare({.vocab_size = cell.vocab_size,
                                             .max_batch = cell.shape.batch,
                                             .max_draft = cell.shape.draft,
                                             .threads = options_.threads});
  if (!status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<RoundSet>> set =
      RoundSet::Make(verify_case, cell.shape, *pools->target, pools->draft, backend->get());
  if (!set.ok()) return set.status();

  Measurement measurement{.case_name = verify_case.name,
                          .method = MethodName(verify_case.method),
                          .rows = RowShapeName(pools->target->spec().shape),
                          .dtype = cell.dtype,
                          .vocab_size = cell.vocab_size,
                          .batch = cell.shape.batch,
                          .draft = cell.shape.draft,
                          .threads = options_.threads,
                          .cold = options_.cold,
                          .ratio_of = BaselineName(options_.baseline)};
  // Runs every round once. These answers are checked, and later runs must repeat them.
  std::vector<RoundAnswer> answers;
  const int64_t max_rows = std::max<int64_t>(kCheckedElementsMax / cell.vocab_size, 1);
  for (int32_t round = 0; round < cell.shape.num_rounds; ++round) {
    RoundAnswer answer = (*set)->MakeAnswer();
    status = (*backend)->Run((*set)->Batch(round, &answer));
    if (!status.ok()) return status;
    if (round == 0) {
      const absl::StatusOr<int64_t> checked = CheckRound(**set, round, answer, max_rows);
      if (!checked.ok()) return checked.status();
      measurement.num_checked = *checked;
    }
    answers.push_back(std::move(answer));
  }
  status = Time(cell, **set, answers, backend->get(), &measurement);
  if (status.ok()) hooks_.on_result(measurement);
  return status;
}

absl::Status VerifySuite::Time(const Cell& cell, const RoundSet& set,
                               const std::vector<RoundAnswer>& answers, Backend* backend,
                               Measurement* measurement) {
  ReadFloor floor(options_.threads);
  const std::unique_ptr<Peer> peer = MakePeer(options_.baseline, set);
  std::vector<TokenId> tokens;
  std::vector<std::vector<std::vector<MemorySpan>>> parts;
  double needed_bytes = 0;
  for (int32_t round = 0; round < cell.shape.num_rounds; ++round) {
    const std::vector<MemorySpan> spans =
        set.NeededRows(round, answers[static_cast<size_t>(round)]);
    for (const MemorySpan& span : spans) needed_bytes += static_cast<double>(span.size_bytes);
    parts.push_back(SplitEvenly(spans, options_.threads));
  }
  const auto measure_base = [&](int32_t round) {
    if (peer == nullptr) return floor.Measure(parts[static_cast<size_t>(round)]);
    tokens.clear();
    peer->Prepare(round);
    const SteadyClock::time_point start = SteadyClock::now();
    peer->Run(&tokens);
    return SteadyClock::now() - start;
  };
  RoundAnswer answer = set.MakeAnswer();
  int32_t round = 0;
  const auto next_round = [&] {
    const int32_t current = round;
    round = (round + 1) % cell.shape.num_rounds;
    return current;
  };

  const LoadMeter meter;
  const absl::StatusOr<PairedTimes> times =
      TimePairs({options_.seconds, kPairsMin, kPairsMax}, [&]() -> absl::StatusOr<TimedPair> {
        TimedPair pair;
        pair.base_us = ToMicroseconds(measure_base(next_round()));
        const int32_t case_round = next_round();
        const RoundBatch batch = set.Batch(case_round, &answer);
        const SteadyClock::time_point start = SteadyClock::now();
        const absl::Status status = backend->Run(batch);
        pair.case_us = ToMicroseconds(SteadyClock::now() - start);
        if (!status.ok()) return status;
        if (!IsSameAnswer(answers[static_cast<size_t>(case_round)], answer,
                          cell.shape.rows_of_sequence())) {
          return absl::InternalError(fmt::format(
              "{}: a round was answered otherwise than the first time", Describe(cell)));
        }
        return pair;
      });
  if (!times.ok()) return times.status();
  measurement->load = meter.Read();
  SetTimes(*times, measurement);
  measurement->base_gigabytes_per_s =
      needed_bytes / cell.shape.num_rounds / measurement->base_us.median / 1e3;
  measurement->target = TargetOf(*cell.verify_case, options_.baseline, *measurement, machine_);
  return absl::OkStatus();
}

}  // namespace specd::bench
