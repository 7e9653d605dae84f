#include "tools/bench/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// The share of the free memory that rows may take.
constexpr double kMemoryShareMax = 0.8;
// Sequences of a round of trees: each has up to 106 rows, in memory of their own.
constexpr int32_t kTreeBatchMax = 8;

std::string_view DTypeName(DType dtype) { return dtype == DType::kFloat32 ? "fp32" : "bf16"; }

// What the ratio is of, and where.
std::string CaptionOf(const Measurement& m) {
  const std::string_view base =
      m.ratio_of == kChainOfTree
          ? "ratio = time of specd / time of `token` over chains of the rows that the tree reads"
      : m.IsSpeedUp() ? "ratio = time of llama.cpp's sample-and-accept loop / time of specd"
                      : "ratio = time of specd / time of a read of the same rows";
  if (m.threads == 0) return fmt::format("{}, on the device", base);
  return fmt::format("{}; {} rows, {} thread{}", base, m.cold ? "cold" : "warm", m.threads,
                     m.threads == 1 ? "" : "s");
}

}  // namespace

void Measurement::SetTimes(const Times& case_times_us, const Times& base_times_us) {
  SPECD_CHECK(case_times_us.size() == base_times_us.size());
  const auto ratio_to = [this](double case_time_us, double base_time_us) {
    return IsSpeedUp() ? base_time_us / case_time_us : case_time_us / base_time_us;
  };
  Times ratios;
  for (size_t i = 0; i < case_times_us.size(); ++i) {
    ratios.push_back(ratio_to(case_times_us[i], base_times_us[i]));
  }
  time_us = Summarise(case_times_us);
  base_us = Summarise(base_times_us);
  ratio = ratio_to(time_us.median, base_us.median);
  const Summary spread = Summarise(std::move(ratios));
  ratio_p10 = spread.p10;
  ratio_p90 = spread.p90;
}

void Measurement::SetRows(double rows_of_round) {
  const auto row_bytes = static_cast<double>(cell.vocab_size * SizeBytes(cell.dtype));
  rows_read = rows_of_round / cell.shape.batch;
  base_gigabytes_per_s = rows_of_round * row_bytes / base_us.median / 1e3;
}

Line LineOf(const Measurement& m) {
  Line line;
  line.Name("case", m.cell.verify_case->name, 16)
      .Name("dtype", DTypeName(m.cell.dtype), 5)
      .Count("vocab", m.cell.vocab_size, 6)
      .Count("batch", m.cell.shape.batch, 5)
      .Count("draft", m.cell.shape.draft, 5)
      .Cell("rows read", 9, "{:.1f}", m.rows_read)
      .Cell("median us", 9, "{:.1f}", m.time_us.median)
      .Cell("p99 us", 9, "{:.1f}", m.time_us.p99)
      .Cell("base us", 9, "{:.1f}", m.base_us.median)
      .Cell("GB/s", 5, "{}",
            m.ratio_of == kRead ? fmt::format("{:.1f}", m.base_gigabytes_per_s) : "-")
      .Number("ratio", 6, 2, m.ratio)
      .Cell("p10..p90", 16, "{:.2f}..{:.2f}", m.ratio_p10, m.ratio_p90)
      .Target(m.goal())
      .Count("checked", m.num_checked, 7)
      .Json("state", m.cold ? "cold" : "warm")
      .Json("unit", "us")
      .Times("", m.time_us)
      .Times("base_", m.base_us)
      .Json("ratio_p10", m.ratio_p10)
      .Json("ratio_p90", m.ratio_p90)
      .Json("ratio_of", m.ratio_of)
      .Json("rows_read", m.rows_read)
      .Json("base_gb_per_s", m.base_gigabytes_per_s);
  return m.threads == 0 ? line : line.Json("threads", m.threads).Load(m.load);
}

std::string Describe(const Cell& cell) {
  return fmt::format("{} {}, vocab {}, batch {}, draft {}", cell.verify_case->name,
                     DTypeName(cell.dtype), cell.vocab_size, cell.shape.batch, cell.shape.draft);
}

absl::StatusOr<const RowPool*> PoolCache::Get(const Cell& cell, bool drafter) {
  if (drafter && !HasDraftRows(*cell.verify_case)) return nullptr;
  const RowSpec spec{
      .shape = cell.verify_case->shape,
      .dtype = cell.dtype,
      .vocab_size = cell.vocab_size,
      .num_rows = cell.shape.num_rounds * cell.shape.rows_of_round(),
      .drafter = drafter,
      .noise = drafter && cell.verify_case->plan == DraftPlan::kDrawn ? kDrawnNoise : 0.0};
  std::optional<RowPool>& pool = drafter ? draft_ : target_;
  if (pool.has_value() && pool->spec().num_rows >= spec.num_rows) {
    RowSpec shorter = pool->spec();
    shorter.num_rows = spec.num_rows;
    if (shorter == spec) return &*pool;
  }
  pool.reset();
  const double size_bytes = static_cast<double>(spec.num_rows) * spec.vocab_size *
                            static_cast<double>(SizeBytes(spec.dtype));
  const auto free_bytes = static_cast<double>(ReadMachine().memory_bytes);
  if (size_bytes > kMemoryShareMax * free_bytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "its rows take {:.1f} GB of the {:.1f} GB that are free: give a smaller --batch, --draft "
        "or --vocab",
        size_bytes / 1e9, free_bytes / 1e9));
  }
  return &pool.emplace(spec);
}

std::vector<Flag> RoundFlags(std::string batches, std::string quick_batches, std::string drafts) {
  return {Flag::Seconds("0.5", "1"),
          Flag::Wholes("vocab", "vocabulary sizes", {1, kVocabSizeMax},
                       "32000,128256,151936,262144", "128256"),
          Flag::Wholes("batch", "sequences of a round; of trees 8 at most", {1, 4096}, batches,
                       quick_batches),
          Flag::Wholes("draft", "draft tokens of a sequence; trees have their own", {0, 64}, drafts,
                       "5"),
          {.name = "dtype",
           .help = "types of the rows",
           .usual = "fp32,bf16",
           .is_list = true,
           .choices = {"fp32", "bf16"}},
          Flag::Whole("threads", "threads of the CPU backend and of the floor; 0: all usable CPUs",
                      {0, 1024}, "0")};
}

int32_t ThreadsOf(const Flags& flags) {
  const int32_t threads = flags.Number("threads");
  return threads == 0 ? ReadMachine().usable_cpus : threads;
}

std::vector<Cell> CellsOf(const Flags& flags, const std::vector<VerifyCase>& cases,
                          absl::FunctionRef<bool(const VerifyCase&, DType)> supports) {
  const std::vector<int32_t> batches = flags.Numbers("batch");
  const std::vector<int32_t> drafts = flags.Numbers("draft");
  std::vector<Cell> cells;
  const auto add = [&](Cell cell) {
    RoundShape& shape = cell.shape;
    if (cell.verify_case->widths.empty()) {
      if (shape.draft == 0 && HasDraftRows(*cell.verify_case)) return;
    } else {
      const bool is_too_large = shape.batch > kTreeBatchMax && shape.batch != batches.front();
      if (shape.draft != drafts.front() || is_too_large) return;
      shape.batch = std::min(shape.batch, kTreeBatchMax);
      shape.draft = static_cast<int32_t>(ParentsOf(*cell.verify_case).size());
    }
    if (supports(*cell.verify_case, cell.dtype)) cells.push_back(cell);
  };
  for (const int32_t vocab_size : flags.Numbers("vocab")) {
    for (const std::string& dtype : flags.List("dtype")) {
      for (const int32_t batch : batches) {
        for (const int32_t draft : drafts) {
          for (const VerifyCase* verify_case : Chosen(flags, cases)) {
            add({.verify_case = verify_case,
                 .dtype = dtype == "bf16" ? DType::kBFloat16 : DType::kFloat32,
                 .vocab_size = vocab_size,
                 .shape = {.batch = batch, .draft = draft}});
          }
        }
      }
    }
  }
  return cells;
}

absl::StatusOr<std::vector<Measurement>> RunCells(
    std::vector<Cell> cells, Output* out, absl::FunctionRef<int32_t(const Cell&)> num_rounds,
    absl::FunctionRef<absl::StatusOr<Measurement>(const Cell&)> run) {
  std::vector<Measurement> measurements;
  for (Cell& cell : cells) {
    cell.shape.num_rounds = num_rounds(cell);
    out->Show(fmt::format("[{}/{}] {}", measurements.size() + 1, cells.size(), Describe(cell)));
    const absl::StatusOr<Measurement> m = run(cell);
    if (!m.ok()) {
      const std::string what(m.status().message());
      return absl::Status(m.status().code(), fmt::format("{}: {}", Describe(cell), what));
    }
    out->Caption(CaptionOf(*m));
    out->Print(LineOf(*m));
    measurements.push_back(*m);
  }
  return measurements;
}

absl::StatusOr<AnsweredCell> AnswerCell(const Cell& cell, int32_t threads,
                                        std::unique_ptr<Backend> backend, PoolCache* pools) {
  SPECD_TAKE(const RowPool* const target, pools->Get(cell, /*drafter=*/false));
  SPECD_TAKE(const RowPool* const draft, pools->Get(cell, /*drafter=*/true));
  SPECD_TRY(backend->Prepare({.vocab_size = cell.vocab_size,
                              .max_batch = cell.shape.batch,
                              .max_draft = cell.shape.draft,
                              .threads = threads}));
  AnsweredCell made = {
      .backend = std::move(backend), .set = nullptr, .answers = {}, .measurement = {.cell = cell}};
  SPECD_TAKE(made.set,
             RoundSet::Make(*cell.verify_case, cell.shape, *target, draft, made.backend.get()));
  for (int32_t round = 0; round < cell.shape.num_rounds; ++round) {
    RoundAnswer& answer = made.answers.emplace_back(made.set->MakeAnswer());
    SPECD_TRY(made.backend->Run(made.set->Batch(round, &answer)));
  }
  return made;
}

}  // namespace specd::bench
