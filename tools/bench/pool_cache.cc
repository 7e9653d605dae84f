#include "tools/bench/pool_cache.h"

#include <fmt/format.h>

#include <utility>

#include "tools/bench/machine.h"
#include "tools/bench/measurement.h"

namespace specd::bench {
namespace {

// The share of the free memory that rows may take.
constexpr double kMemoryShareMax = 0.8;

}  // namespace

std::string Describe(const Cell& cell) {
  return fmt::format("{} {}, vocab {}, batch {}, draft {}", cell.verify_case->name,
                     DTypeName(cell.dtype), cell.vocab_size, cell.shape.batch, cell.shape.draft);
}

absl::StatusOr<Pools> PoolCache::For(const Cell& cell) {
  const absl::StatusOr<const RowPool*> target = Get(cell, false);
  if (!target.ok()) return target.status();
  Pools pools{.target = *target};
  if (!HasDraftRows(*cell.verify_case)) return pools;
  const absl::StatusOr<const RowPool*> draft = Get(cell, true);
  if (!draft.ok()) return draft.status();
  pools.draft = *draft;
  return pools;
}

absl::StatusOr<const RowPool*> PoolCache::Get(const Cell& cell, bool drafter) {
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
  absl::StatusOr<RowPool> made = RowPool::Make(spec);
  if (!made.ok()) return made.status();
  pool.emplace(std::move(*made));
  return &*pool;
}

}  // namespace specd::bench
