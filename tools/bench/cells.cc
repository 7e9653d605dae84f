#include "tools/bench/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/bench/try.h"

namespace specd::bench {
namespace {

// The share of the free memory that rows may take.
constexpr double kMemoryShareMax = 0.8;
// Sequences of a round of trees: each has up to 106 rows, in memory of their own.
constexpr int32_t kTreeBatchMax = 8;

// The round of a case, if this batch and draft are one of its own.
std::optional<RoundShape> ShapeOf(const VerifyOptions& options, const VerifyCase& verify_case,
                                  int32_t batch, int32_t draft) {
  if (verify_case.widths[0] == 0) {
    if (draft == 0 && HasDraftRows(verify_case)) return std::nullopt;
    return RoundShape{.batch = batch, .draft = draft};
  }
  const bool is_first = batch == options.batches.front();
  if (draft != options.drafts.front() || (batch > kTreeBatchMax && !is_first)) return std::nullopt;
  return RoundShape{.batch = std::min(batch, kTreeBatchMax),
                    .draft = static_cast<int32_t>(ParentsOf(verify_case).size())};
}

}  // namespace

std::string Describe(const Cell& cell) {
  return fmt::format("{} {}, vocab {}, batch {}, draft {}", cell.verify_case->name,
                     DTypeName(cell.dtype), cell.vocab_size, cell.shape.batch, cell.shape.draft);
}

absl::StatusOr<const RowPool*> PoolCache::Get(const Cell& cell, bool drafter) {
  if (drafter && !HasDraftRows(*cell.verify_case)) return nullptr;
  const RowSpec spec{.shape = cell.verify_case->shape.value_or(shape_),
                     .path = path_,
                     .dtype = cell.dtype,
                     .vocab_size = cell.vocab_size,
                     .num_rows = cell.shape.num_rounds * cell.shape.rows_of_round(),
                     .drafter = drafter,
                     .noise = drafter && cell.verify_case->plan == DraftPlan::kDrawn
                                  ? cell.verify_case->noise
                                  : 0.0};
  std::optional<RowPool>& pool = drafter ? draft_ : target_;
  if (pool.has_value() && pool->spec().shape == spec.shape && pool->spec().dtype == spec.dtype &&
      pool->spec().vocab_size == spec.vocab_size && pool->spec().noise == spec.noise &&
      pool->spec().num_rows >= spec.num_rows) {
    return &*pool;
  }
  pool.reset();
  const double size_bytes = static_cast<double>(spec.num_rows) * spec.vocab_size *
                            static_cast<double>(SizeBytes(spec.dtype));
  const auto free_bytes = static_cast<double>(ReadMachine().memory_bytes);
  if (size_bytes > kMemoryShareMax * free_bytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "{}: its rows take {:.1f} GB of the {:.1f} GB that are free: give a smaller --batch, "
        "--draft or --vocab",
        Describe(cell), size_bytes / 1e9, free_bytes / 1e9));
  }
  SPECD_TAKE(pool, RowPool::Make(spec));
  return &*pool;
}

std::vector<Flag> RoundFlags(std::string batches, std::string quick_batches, std::string drafts) {
  return {Flag::Wholes("vocab", "vocabulary sizes", {1, kVocabSizeMax},
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
                      {0, 1024}, "0"),
          {.name = "rows",
           .help = "llm, spikes, flat, ascending, or a file of recorded fp32 logits of one --vocab",
           .usual = "llm"}};
}

VerifyOptions OptionsOf(const Flags& flags, const std::vector<VerifyCase>& cases,
                        const Machine& machine) {
  const int32_t threads = flags.Number("threads");
  VerifyOptions options = {.cases = Chosen(flags, cases),
                           .vocab_sizes = flags.Numbers("vocab"),
                           .batches = flags.Numbers("batch"),
                           .drafts = flags.Numbers("draft"),
                           .dtypes = {},
                           .threads = threads == 0 ? machine.usable_cpus : threads,
                           .shape = ParseRowShape(flags.Text("rows")),
                           .rows_path = flags.Text("rows"),
                           .seconds = flags.Real("seconds")};
  for (const std::string& name : flags.List("dtype")) {
    options.dtypes.push_back(name == "bf16" ? DType::kBFloat16 : DType::kFloat32);
  }
  return options;
}

std::vector<Cell> CellsOf(const VerifyOptions& options,
                          absl::FunctionRef<bool(const VerifyCase&, DType)> supports) {
  std::vector<Cell> cells;
  for (const int32_t vocab_size : options.vocab_sizes) {
    for (const DType dtype : options.dtypes) {
      for (const int32_t batch : options.batches) {
        for (const int32_t draft : options.drafts) {
          for (const VerifyCase* verify_case : options.cases) {
            const auto shape = ShapeOf(options, *verify_case, batch, draft);
            if (!shape.has_value() || !supports(*verify_case, dtype)) continue;
            cells.push_back({verify_case, dtype, vocab_size, *shape});
          }
        }
      }
    }
  }
  return cells;
}

RoundHooks HooksFor(std::string_view backend, Output* out) {
  return {.make_backend = [backend] { return MakeBackend(backend); },
          .on_progress = [out](std::string_view text) { out->Show(text); },
          .on_result = [out](const Measurement& measurement) { Print(measurement, out); }};
}

absl::Status RunCells(std::vector<Cell> cells, const RoundHooks& hooks,
                      absl::FunctionRef<int32_t(const Cell&)> num_rounds,
                      absl::FunctionRef<absl::Status(const Cell&)> run) {
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i].shape.num_rounds = num_rounds(cells[i]);
    hooks.on_progress(fmt::format("[{}/{}] {}", i + 1, cells.size(), Describe(cells[i])));
    SPECD_TRY(run(cells[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<AnsweredCell> AnswerCell(const Cell& cell, int32_t threads,
                                        std::unique_ptr<Backend> backend, PoolCache* pools) {
  SPECD_TAKE(const RowPool* const target, pools->Get(cell, /*drafter=*/false));
  SPECD_TAKE(const RowPool* const draft, pools->Get(cell, /*drafter=*/true));
  SPECD_TRY(backend->Prepare(cell.limits(threads)));
  AnsweredCell made = {.backend = std::move(backend),
                       .set = nullptr,
                       .answers = {},
                       .measurement = {.case_name = cell.verify_case->name,
                                       .method = MethodName(cell.verify_case->method),
                                       .rows = RowShapeName(target->spec().shape),
                                       .dtype = cell.dtype,
                                       .vocab_size = cell.vocab_size,
                                       .batch = cell.shape.batch,
                                       .draft = cell.shape.draft}};
  SPECD_TAKE(made.set,
             RoundSet::Make(*cell.verify_case, cell.shape, *target, draft, made.backend.get()));
  for (int32_t round = 0; round < cell.shape.num_rounds; ++round) {
    RoundAnswer& answer = made.answers.emplace_back(made.set->MakeAnswer());
    SPECD_TRY(made.backend->Run(made.set->Batch(round, &answer)));
  }
  return made;
}

}  // namespace specd::bench
