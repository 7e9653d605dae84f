#include "tools/bench/verify_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/core/check.h"
#include "tools/bench/llama_loop.h"
#include "tools/bench/needed_rows.h"
#include "tools/bench/peer.h"
#include "tools/bench/read_floor.h"
#include "tools/bench/round_check.h"
#include "tools/bench/textbook.h"
#include "tools/bench/timing.h"

namespace specd::bench {
namespace {

// Sequences of a round of trees: each has up to 106 rows, in memory of their own.
constexpr int32_t kTreeBatchMax = 8;

// Elements that a check may compute again: half a second of std::exp and sorting.
constexpr int64_t kCheckedElementsMax = 8'000'000;

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

std::vector<Flag> RoundFlags(std::string batches, std::string quick_batches, std::string drafts) {
  using Kind = Flag::Kind;
  return {{.name = "vocab",
           .kind = Kind::kWhole,
           .help = "vocabulary sizes",
           .usual = "32000,128256,151936,262144",
           .quick = "128256",
           .minimum = 1,
           .maximum = kVocabSizeMax,
           .is_list = true},
          {.name = "batch",
           .kind = Kind::kWhole,
           .help = "sequences of a round; of trees 8 at most",
           .usual = std::move(batches),
           .quick = std::move(quick_batches),
           .minimum = 1,
           .maximum = 4096,
           .is_list = true},
          {.name = "draft",
           .kind = Kind::kWhole,
           .help = "draft tokens of a sequence; trees have their own",
           .usual = std::move(drafts),
           .quick = "5",
           .maximum = 64,
           .is_list = true},
          {.name = "dtype",
           .help = "types of the rows",
           .usual = "fp32,bf16",
           .is_list = true,
           .choices = {"fp32", "bf16"}},
          {.name = "threads",
           .kind = Kind::kWhole,
           .help = "threads of the CPU backend and of the floor; 0: all usable CPUs",
           .usual = "0",
           .maximum = 1024},
          {.name = "rows",
           .help = "llm, spikes, flat, ascending, or a file of recorded fp32 logits of one --vocab",
           .usual = "llm"}};
}

VerifyOptions OptionsOf(const Flags& flags, const std::vector<VerifyCase>& cases,
                        const Machine& machine) {
  VerifyOptions options;
  options.cases = Chosen(flags, cases);
  for (const std::string& name : flags.List("dtype")) {
    options.dtypes.push_back(name == "bf16" ? DType::kBFloat16 : DType::kFloat32);
  }
  options.vocab_sizes = flags.Numbers("vocab");
  options.batches = flags.Numbers("batch");
  options.drafts = flags.Numbers("draft");
  const int32_t threads = flags.Number("threads");
  options.threads = threads == 0 ? machine.usable_cpus : threads;
  options.rows_path = flags.Text("rows");
  options.shape = ParseRowShape(options.rows_path);
  options.seconds = flags.Real("seconds");
  return options;
}

Measurement MeasurementOf(const Cell& cell, const Pools& pools) {
  return {.case_name = cell.verify_case->name,
          .method = MethodName(cell.verify_case->method),
          .rows = RowShapeName(pools.target->spec().shape),
          .dtype = cell.dtype,
          .vocab_size = cell.vocab_size,
          .batch = cell.shape.batch,
          .draft = cell.shape.draft};
}

absl::Status Prepare(const Cell& cell, int32_t threads, Backend* backend) {
  return backend->Prepare({.vocab_size = cell.vocab_size,
                           .max_batch = cell.shape.batch,
                           .max_draft = cell.shape.draft,
                           .threads = threads});
}

std::vector<Cell> CellsOf(const VerifyOptions& options,
                          absl::FunctionRef<bool(const VerifyCase&, DType)> supports) {
  std::vector<Cell> cells;
  for (const int32_t vocab_size : options.vocab_sizes) {
    for (const DType dtype : options.dtypes) {
      for (const int32_t batch : options.batches) {
        for (const int32_t draft : options.drafts) {
          for (const VerifyCase* verify_case : options.cases) {
            if (draft == 0 && verify_case->widths[0] == 0 && HasDraftRows(*verify_case)) continue;
            if (!supports(*verify_case, dtype)) continue;
            const auto num_nodes = static_cast<int32_t>(ParentsOf(*verify_case).size());
            RoundShape shape = {.batch = batch, .draft = draft};
            if (num_nodes > 0) {
              const bool is_first = batch == options.batches.front();
              if (draft != options.drafts.front() || (batch > kTreeBatchMax && !is_first)) continue;
              shape = {.batch = std::min(batch, kTreeBatchMax), .draft = num_nodes};
            }
            cells.push_back({verify_case, dtype, vocab_size, shape});
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

// In a cold measurement at least twice the last-level cache is read between two visits of a round.
// The number is odd, so that floor and case, taken in turn, both come to every round.
int32_t VerifySuite::NumRounds(const Cell& cell) const {
  if (!options_.cold) return 1;
  const int64_t round_bytes = cell.round_bytes();
  const int64_t between = (2 * machine_.last_level_bytes + round_bytes - 1) / round_bytes;
  return static_cast<int32_t>(std::max<int64_t>(between + 1, 3) | 1);
}

absl::Status VerifySuite::Run() {
  const std::vector<Cell> cells = Cells();
  for (size_t i = 0; i < cells.size(); ++i) {
    hooks_.on_progress(fmt::format("[{}/{}] {}", i + 1, cells.size(), Describe(cells[i])));
    if (absl::Status status = RunCell(cells[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status VerifySuite::RunCell(const Cell& cell) {
  const absl::StatusOr<Pools> pools = pools_.For(cell);
  if (!pools.ok()) return pools.status();

  absl::StatusOr<std::unique_ptr<Backend>> backend = hooks_.make_backend();
  if (!backend.ok()) return backend.status();
  absl::Status status = Prepare(cell, options_.threads, backend->get());
  if (!status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<RoundSet>> set =
      RoundSet::Make(*cell.verify_case, cell.shape, *pools->target, pools->draft, backend->get());
  if (!set.ok()) return set.status();

  Measurement measurement = MeasurementOf(cell, *pools);
  measurement.threads = options_.threads;
  measurement.cold = options_.cold;
  measurement.ratio_of = BaselineName(options_.baseline);
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
  double rows_read = 0;
  for (int32_t round = 0; round < cell.shape.num_rounds; ++round) {
    const std::vector<MemorySpan> spans =
        NeededRows(set, round, answers[static_cast<size_t>(round)]);
    for (const MemorySpan& span : spans) needed_bytes += static_cast<double>(span.size_bytes);
    rows_read += static_cast<double>(spans.size());
    parts.push_back(SplitEvenly(spans, options_.threads));
  }
  const auto measure_base_us = [&](int32_t round) {
    if (peer == nullptr) {
      return std::chrono::duration<double, std::micro>(
                 floor.Measure(parts[static_cast<size_t>(round)]))
          .count();
    }
    tokens.clear();
    peer->Prepare(round);
    const SteadyClock::time_point start = SteadyClock::now();
    peer->Run(&tokens);
    return MicrosSince(start);
  };
  RoundAnswer answer = set.MakeAnswer();
  answer.decisions.clear();
  measurement->rows_read = rows_read / cell.shape.num_rounds / cell.shape.batch;
  measurement->rows_given = NumRowsGiven(set);
  int32_t round = 0;
  const auto next_round = [&] {
    const int32_t current = round;
    round = (round + 1) % cell.shape.num_rounds;
    return current;
  };

  const LoadMeter meter;
  PairedTimes times;
  const absl::Status timed = Repeat({options_.seconds}, [&](size_t) -> absl::Status {
    times.base_us.push_back(measure_base_us(next_round()));
    const int32_t case_round = next_round();
    const RoundBatch batch = set.Batch(case_round, &answer);
    const SteadyClock::time_point start = SteadyClock::now();
    const absl::Status status = backend->Run(batch);
    times.case_us.push_back(MicrosSince(start));
    if (!status.ok() || IsSameAnswer(answers[static_cast<size_t>(case_round)], answer,
                                     cell.shape.rows_of_sequence())) {
      return status;
    }
    return absl::InternalError(
        fmt::format("{}: a round was answered otherwise than the first time", Describe(cell)));
  });
  if (!timed.ok()) return timed;
  measurement->load = meter.Read();
  SetTimes(times, measurement);
  measurement->base_gigabytes_per_s =
      needed_bytes / cell.shape.num_rounds / measurement->base_us.median / 1e3;
  measurement->target = TargetOf(*cell.verify_case, options_.baseline, *measurement, machine_);
  return absl::OkStatus();
}

namespace {

// Options for the second half of --quick: one thread, with rows that a cache holds.
VerifyOptions PeerOptions(VerifyOptions options) {
  options.baseline = Baseline::kTextbook;
  options.dtypes = {DType::kFloat32};
  options.batches = {1};
  options.threads = 1;
  options.cold = false;
  return options;
}

absl::Status RunVerify(const Flags& flags, Output* out) {
  const Machine machine = ReadMachine();
  VerifyOptions options = OptionsOf(flags, VerifyCases(), machine);
  options.cold = flags.Text("state") == "cold";
  const std::string& base = flags.Text("base");
  for (const Baseline known : {Baseline::kTextbook, Baseline::kLlama}) {
    if (base == BaselineName(known)) options.baseline = known;
  }
  if (options.baseline == Baseline::kLlama && !IsLlamaBuiltIn()) {
    return absl::InvalidArgumentError(
        "base = llama needs llama.cpp, which this specd-bench was built without: configure with "
        "-DSPECD_LLAMA=PREFIX of an installed llama.cpp, or give --base=textbook");
  }
  out->Begin(machine.processor, Describe(machine, options.threads));
  const VerifySuite::Hooks hooks{
      .make_backend = [] { return MakeBackend("cpu"); },
      .on_progress = [&](std::string_view text) { out->Show(text); },
      .on_result = [&](const Measurement& measurement) { Print(measurement, out); }};
  const absl::Status status = VerifySuite(options, machine, hooks).Run();
  if (!status.ok() || !flags.IsOn("quick") || !base.empty()) return status;
  return VerifySuite(PeerOptions(options), machine, hooks).Run();
}

}  // namespace

Suite VerifyCommand() {
  Suite suite = {.name = "verify",
                 .summary = "rounds of the CPU backend beside a read of the same rows",
                 .examples = {"--quick", "--quick --json > verify.jsonl",
                              "--case=topk40,flat_topp95 --vocab=151936 --batch=8 --draft=3",
                              "--quick --threads=1 --state=warm --batch=1",
                              "--quick --base=textbook --threads=1 --batch=1",
                              "--rows=logits.f32 --vocab=128256 --batch=1 --draft=0"},
                 .cases = WordsOf(VerifyCases()),
                 .seconds = "0.5",
                 .quick_seconds = "1",
                 .flags = RoundFlags("1,8,32,64", "32", "0,3,5,8"),
                 .run = &RunVerify};
  suite.flags.push_back({.name = "state",
                         .help = "cold: rows come from memory; warm: the same rows again and again",
                         .usual = "cold",
                         .choices = {"cold", "warm"}});
  suite.flags.push_back(
      {.name = "base",
       .help = "what to compare with: read, textbook (a plain sampler) or llama (llama.cpp's "
               "samplers); without it read, and with --quick then textbook for one warm sequence",
       .choices = {std::begin(kBaselineNames), std::end(kBaselineNames)}});
  return suite;
}

}  // namespace specd::bench
