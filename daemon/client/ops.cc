#include "daemon/client/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/client/ops_backend.h"
#include "ipc/base/error.h"
#include "ipc/memory/region.h"
#include "kernels/backend.h"
#include "speculative/params/param_table.h"
#include "speculative/params/params.h"

namespace specd {
namespace {

constexpr size_t kChunkRows = kOpsChunkRows;

// ---- checks of the caller's arguments

// The rows of a call: result i is made from row index(i) of the view.
struct RowSet {
  TensorView view;                    // UseBackend says in which memory
  std::span<const uint32_t> indices;  // empty: all
  size_t num_results = 0;

  uint32_t index(size_t i) const { return indices.empty() ? static_cast<uint32_t>(i) : indices[i]; }
};

absl::StatusOr<TensorView> CheckView(const specd_rows& rows) {
  if (rows.reserved != 0) return Invalid("reserved", "rows.reserved must be 0");
  if (rows.renormalise > 1) {
    return Invalid("renormalise",
                   fmt::format("rows.renormalise = {} must be 0 or 1", rows.renormalise));
  }
  if (rows.vocab_size < 1 || rows.vocab_size > static_cast<uint32_t>(kVocabSizeMax)) {
    return Invalid("vocab_size", fmt::format("rows.vocab_size = {} is outside 1 .. {}",
                                             rows.vocab_size, kVocabSizeMax));
  }
  if (rows.data == nullptr) return Invalid("data", "rows.data is NULL");
  if (rows.num_rows < 1 || rows.num_rows > kTensorRowsMax) {
    return Invalid("num_rows", fmt::format("rows.num_rows = {} is outside 1 .. {}", rows.num_rows,
                                           kTensorRowsMax));
  }
  const uint64_t row_stride = rows.row_stride == 0 ? rows.vocab_size : rows.row_stride;
  if (row_stride < rows.vocab_size || row_stride > kRegionBytesMax) {
    return Invalid("row_stride",
                   fmt::format("rows.row_stride = {} is outside {} .. {} elements (or 0 for rows "
                               "without gaps)",
                               row_stride, rows.vocab_size, kRegionBytesMax));
  }
  if (rows.dtype > SPECD_FLOAT16) {
    return Invalid("dtype", fmt::format("rows.dtype = {} is unknown; use SPECD_FLOAT32 (0), "
                                        "SPECD_BFLOAT16 (1) or SPECD_FLOAT16 (2)",
                                        rows.dtype));
  }
  TensorSpec spec;
  spec.dtype = rows.dtype;
  spec.kind = rows.kind;
  spec.renormalise = rows.renormalise != 0;
  spec.scale = rows.scale;
  spec.cap = rows.cap;
  const absl::StatusOr<ElementRules> rules = CheckRules(spec);
  if (!rules.ok()) return rules.status();
  const auto dtype = static_cast<DType>(rows.dtype);
  if (reinterpret_cast<uintptr_t>(rows.data) % static_cast<uint64_t>(SizeBytes(dtype)) != 0) {
    return Invalid("data", fmt::format("rows.data is not aligned to an element of {} bytes",
                                       SizeBytes(dtype)));
  }
  return TensorView{.data = rows.data,
                    .dtype = dtype,
                    .num_rows = static_cast<int64_t>(rows.num_rows),
                    .row_stride = static_cast<int64_t>(row_stride),
                    .vocab_size = static_cast<int32_t>(rows.vocab_size),
                    .rules = *rules};
}

absl::StatusOr<RowSet> CheckRows(const specd_rows& rows) {
  const absl::StatusOr<TensorView> view = CheckView(rows);
  if (!view.ok()) return view.status();
  if (rows.indices == nullptr) {
    if (rows.num_indices != 0) {
      return Invalid("indices",
                     fmt::format("rows.indices is NULL but num_indices = {}", rows.num_indices));
    }
    return RowSet{*view, {}, rows.num_rows};
  }
  const std::span<const uint32_t> indices(rows.indices, rows.num_indices);
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < rows.num_rows) continue;
    return Invalid("indices", fmt::format("rows.indices[{}] = {} is outside 0 .. {}", i, indices[i],
                                          rows.num_rows - 1));
  }
  return RowSet{*view, indices, indices.size()};
}

template <class List, class Value>
Value ValueAt(const List& list, size_t i, Value otherwise) {
  return list.items == nullptr ? otherwise : static_cast<Value>(list.items[i * list.stride]);
}

template <class List>
absl::Status CheckStride(std::string_view field, const List& list) {
  if (list.stride <= 1) return absl::OkStatus();
  return Invalid(field, fmt::format("{}.stride = {} must be 0 (one value for all rows) or 1 (one "
                                    "each)",
                                    field, list.stride));
}

absl::Status CheckValue(std::string_view field, size_t i, double value) {
  const ParamRow* row = FindParam(field);
  if (row->range.Contains(value)) return absl::OkStatus();
  return Invalid(field,
                 fmt::format("{}[{}] = {} is outside {}", field, i, value, RangeText(row->range)));
}

// Allows any temperature that can be divided by. A sequence's temperature has a further bound.
absl::Status CheckTemperature(size_t i, double value, double minimum) {
  if (value >= minimum && std::isfinite(value)) return absl::OkStatus();
  return Invalid("temperature",
                 fmt::format("temperature[{}] = {} is not finite or below {}", i, value, minimum));
}

absl::Status CheckFinal(const RowSet& rows, bool changes) {
  if (rows.view.rules.kind != RowKind::kFinalProbabilities || !changes) return absl::OkStatus();
  return Invalid("kind",
                 "rows of SPECD_FINAL_PROBABILITIES are taken as they are and nothing may change "
                 "them; use SPECD_PROBABILITIES");
}

// ---- the work

uint32_t StatusOf(OutcomeStatus status) {
  return status == OutcomeStatus::kOk ? SPECD_STATUS_OK : SPECD_STATUS_BAD_DISTRIBUTION;
}

// Samples one row for each task without a draft. The id of result i goes to ids[i].
absl::Status RunTasks(const specd_rows& from, RowSet rows, std::span<Task> tasks, int32_t* ids,
                      uint32_t* statuses) {
  const absl::StatusOr<OpsBackend*> backend = UseBackend(from, &rows.view);
  if (!backend.ok()) return backend.status();
  std::array<uint32_t, kChunkRows> indices;
  std::array<TaskOutcome, kChunkRows> outcomes;
  std::array<TokenId, kChunkRows> tokens;
  for (size_t first = 0; first < tasks.size(); first += kChunkRows) {
    const size_t count = std::min(kChunkRows, tasks.size() - first);
    for (size_t i = 0; i < count; ++i) {
      indices[i] = rows.index(first + i);
      tasks[first + i].draft.target_rows = &indices[i];
    }
    RoundBatch batch;
    batch.target = rows.view;
    batch.tasks = &tasks[first];
    batch.num_tasks = static_cast<int32_t>(count);
    batch.outcomes = outcomes.data();
    batch.tokens = tokens.data();
    batch.tokens_stride = 1;
    if (absl::Status status = (*backend)->Run(batch); !status.ok()) return status;
    for (size_t i = 0; i < count; ++i) {
      const bool good = outcomes[i].status == OutcomeStatus::kOk;
      ids[first + i] = good ? tokens[i] : kNoToken;
      if (statuses != nullptr) statuses[first + i] = StatusOf(outcomes[i].status);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOpParams(RowOp op, const RowSet& rows, const RowOpParams& params) {
  for (absl::Status status :
       {CheckStride("temperature", params.temperature), CheckStride("top_p", params.top_p),
        CheckStride("top_k", params.top_k), CheckFinal(rows, op != RowOp::kSoftmax)}) {
    if (!status.ok()) return status;
  }
  for (size_t i = 0; i < rows.num_results; ++i) {
    const double temperature = ValueAt(params.temperature, i, 1.0);
    if (absl::Status status = CheckTemperature(i, temperature, kGreedyTemperature); !status.ok()) {
      return status;
    }
    if (absl::Status status = CheckFinal(rows, temperature != 1.0); !status.ok()) return status;
    if (absl::Status status = CheckValue("top_p", i, ValueAt(params.top_p, i, 1.0)); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

// Tasks that draw, and the coins that they draw with. A library call has coins of its own purpose
// (CONTRACT §4), so they stand in the place of the SAMPLE coins that a verifier would use.
struct Draws {
  std::vector<Task> tasks;
  std::vector<InjectedCoin> coins;
};

// Gives the word of a coin's key for result i: below 2^32.
absl::StatusOr<uint32_t> KeyWordAt(std::string_view field, const specd_row_words& list, size_t i,
                                   uint64_t otherwise) {
  const uint64_t value = ValueAt(list, i, otherwise);
  if (value <= UINT32_MAX) return static_cast<uint32_t>(value);
  return Invalid(field, fmt::format("{}[{}] = {} is outside 0 .. {}", field, i, value, UINT32_MAX));
}

absl::StatusOr<Draws> MakeDraws(const RowSet& rows, const specd_sampling& sampling) {
  Draws draws{std::vector<Task>(rows.num_results), std::vector<InjectedCoin>(rows.num_results)};
  for (size_t i = 0; i < rows.num_results; ++i) {
    SequenceParams params;
    params.temperature = ValueAt(sampling.temperature, i, 1.0);
    params.top_p = ValueAt(sampling.top_p, i, 1.0);
    params.min_p = ValueAt(sampling.min_p, i, 0.0);
    params.top_k = ValueAt(sampling.top_k, i, int64_t{0});
    params.filter_order = static_cast<FilterOrder>(sampling.filter_order);
    const absl::StatusOr<uint32_t> position = KeyWordAt("position", sampling.position, i, i);
    const absl::StatusOr<uint32_t> base = KeyWordAt("round_base", sampling.round_base, i, 0);
    const bool greedy = IsGreedy(params);
    for (absl::Status status :
         {CheckTemperature(i, params.temperature, 0), CheckValue("top_p", i, params.top_p),
          CheckValue("min_p", i, params.min_p),
          CheckFinal(rows, params.temperature != 1.0 || params.top_p != 1.0 ||
                               params.min_p != 0.0 || params.top_k > 0),
          position.status(), base.status()}) {
      if (!status.ok()) return status;
    }
    if (!greedy && sampling.seed.items == nullptr) {
      return Invalid("seed", fmt::format("seed.items is NULL but result {} is drawn; give a seed, "
                                         "or temperature 0",
                                         i));
    }
    Task& task = draws.tasks[i];
    task.method = greedy ? VerifyMethod::kGreedy : VerifyMethod::kExactMatch;
    task.seed = ValueAt(sampling.seed, i, uint64_t{0});
    task.first_position = *position;
    if (greedy) continue;
    draws.coins[i] = {SampleCoin(*position), KeyedCoins(task.seed)(LibraryCoin(*position, *base))};
    task.coins = &draws.coins[i];
    task.num_coins = 1;
    task.target_scale = ScaleFor(params.temperature);
    task.target_filters = MakeFilters(params, rows.view.vocab_size);
  }
  return draws;
}

}  // namespace

absl::Status TransformRows(RowOp op, const specd_rows& from, const RowOpParams& params, float* out,
                           uint32_t* statuses) {
  if (absl::Status status = CheckOnHost({{"indices", from.indices},
                                         {"temperature", params.temperature.items},
                                         {"top_p", params.top_p.items},
                                         {"top_k", params.top_k.items},
                                         {"out", out},
                                         {"statuses", statuses}});
      !status.ok()) {
    return status;
  }
  absl::StatusOr<RowSet> rows = CheckRows(from);
  if (!rows.ok()) return rows.status();
  if (absl::Status status = CheckOpParams(op, *rows, params); !status.ok()) return status;
  const absl::StatusOr<OpsBackend*> backend = UseBackend(from, &rows->view);
  if (!backend.ok()) return backend.status();
  const size_t vocab_size = rows->view.vocab_size;
  std::array<RowTransform, kChunkRows> transforms;
  std::array<OutcomeStatus, kChunkRows> outcomes;
  for (size_t first = 0; first < rows->num_results; first += kChunkRows) {
    const size_t count = std::min(kChunkRows, rows->num_results - first);
    for (size_t i = 0; i < count; ++i) {
      DraftParams filters;
      filters.top_p = ValueAt(params.top_p, first + i, 1.0);
      filters.top_k = ValueAt(params.top_k, first + i, int64_t{0});
      transforms[i] = {rows->index(first + i),
                       ScaleFor(ValueAt(params.temperature, first + i, 1.0)),
                       MakeFilters(filters, rows->view.vocab_size), op == RowOp::kTopKMask,
                       out + (first + i) * vocab_size};
    }
    const absl::Status status = (*backend)->Transform(
        {rows->view, transforms.data(), static_cast<int32_t>(count), outcomes.data()});
    if (!status.ok()) return status;
    for (size_t i = 0; statuses != nullptr && i < count; ++i) {
      statuses[first + i] = StatusOf(outcomes[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status SampleRows(const specd_rows& from, const specd_sampling& sampling, int32_t* ids,
                        uint32_t* statuses) {
  if (absl::Status status = CheckOnHost({{"indices", from.indices},
                                         {"temperature", sampling.temperature.items},
                                         {"top_p", sampling.top_p.items},
                                         {"min_p", sampling.min_p.items},
                                         {"top_k", sampling.top_k.items},
                                         {"seed", sampling.seed.items},
                                         {"position", sampling.position.items},
                                         {"round_base", sampling.round_base.items},
                                         {"ids", ids},
                                         {"statuses", statuses}});
      !status.ok()) {
    return status;
  }
  const absl::StatusOr<RowSet> rows = CheckRows(from);
  if (!rows.ok()) return rows.status();
  if (sampling.filter_order > SPECD_FILTERS_JOINT) {
    return Invalid("filter_order", fmt::format("filter_order = {} is unknown; use "
                                               "SPECD_FILTERS_SEQUENTIAL (0) or "
                                               "SPECD_FILTERS_JOINT (1)",
                                               sampling.filter_order));
  }
  for (absl::Status status :
       {CheckStride("temperature", sampling.temperature), CheckStride("top_p", sampling.top_p),
        CheckStride("min_p", sampling.min_p), CheckStride("top_k", sampling.top_k),
        CheckStride("seed", sampling.seed), CheckStride("position", sampling.position),
        CheckStride("round_base", sampling.round_base)}) {
    if (!status.ok()) return status;
  }
  absl::StatusOr<Draws> draws = MakeDraws(*rows, sampling);
  if (!draws.ok()) return draws.status();
  return RunTasks(from, *rows, draws->tasks, ids, statuses);
}

absl::Status ArgmaxRows(const specd_rows& from, int32_t* ids, uint32_t* statuses) {
  if (absl::Status status =
          CheckOnHost({{"indices", from.indices}, {"ids", ids}, {"statuses", statuses}});
      !status.ok()) {
    return status;
  }
  const absl::StatusOr<RowSet> rows = CheckRows(from);
  if (!rows.ok()) return rows.status();
  std::vector<Task> tasks(rows->num_results);  // greedy by default
  return RunTasks(from, *rows, tasks, ids, statuses);
}

}  // namespace specd
