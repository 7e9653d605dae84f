// Cells are the measurements that `verify` and `gpu` were asked for: a case, a type and a shape
// each. AnsweredCell is one of them with its rounds and their answers.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "tools/bench/measurement.h"
#include "tools/bench/round_set.h"
#include "tools/bench/rows.h"
#include "tools/bench/suite.h"
#include "tools/bench/timing.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

// One measurement to make.
struct Cell {
  const VerifyCase* verify_case = nullptr;
  DType dtype = DType::kFloat32;
  int32_t vocab_size = 0;
  RoundShape shape;

  int64_t round_bytes() const {
    return shape.rows_of_round() * vocab_size * SizeBytes(dtype) *
           (HasDraftRows(*verify_case) ? 2 : 1);
  }
  BackendLimits limits(int32_t threads) const {
    return {.vocab_size = vocab_size,
            .max_batch = shape.batch,
            .max_draft = shape.draft,
            .threads = threads};
  }
};

std::string Describe(const Cell& cell);

// The last pools of rows, because neighbouring measurements share pools.
class PoolCache {
 public:
  PoolCache(RowShape shape, std::string path) : shape_(shape), path_(std::move(path)) {}

  // Null, of a drafter: the case has no draft rows. Valid until the next call with this `drafter`.
  // RESOURCE_EXHAUSTED if the pool would not fit into memory.
  absl::StatusOr<const RowPool*> Get(const Cell& cell, bool drafter);

 private:
  RowShape shape_;
  std::string path_;  // for RowShape::kFile
  std::optional<RowPool> target_;
  std::optional<RowPool> draft_;
};

struct VerifyOptions {
  // What a round is compared with: read, chain or llama. Empty: chain for trees under
  // VerifyMethod::kTree, and else read.
  std::string_view base = {};
  std::vector<const VerifyCase*> cases;
  std::vector<int32_t> vocab_sizes;
  std::vector<int32_t> batches;
  std::vector<int32_t> drafts;
  std::vector<DType> dtypes;
  int32_t threads = 1;
  bool cold = true;
  RowShape shape = RowShape::kLlm;
  std::string rows_path = {};  // for RowShape::kFile
  double seconds = 1;          // of timing, for each measurement
};

// The flags that `verify` and `gpu` share, with the defaults of each, and the options that they
// give.
std::vector<Flag> RoundFlags(std::string batches, std::string quick_batches, std::string drafts);
VerifyOptions OptionsOf(const Flags& flags, const std::vector<VerifyCase>& cases,
                        const Machine& machine);

// All combinations that were asked for and make sense, one round each. Sampled drafts need a draft.
std::vector<Cell> CellsOf(const VerifyOptions& options,
                          absl::FunctionRef<bool(const VerifyCase&, DType)> supports);

struct RoundHooks {
  std::function<absl::StatusOr<std::unique_ptr<Backend>>()> make_backend;
  std::function<void(std::string_view)> on_progress;  // is told each piece of work
  std::function<void(const Measurement&)> on_result;
};
// Those of a command over the backend of this name.
RoundHooks HooksFor(std::string_view backend, Output* out);
// Runs each of the cells, in so many rounds.
absl::Status RunCells(std::vector<Cell> cells, const RoundHooks& hooks,
                      absl::FunctionRef<int32_t(const Cell&)> num_rounds,
                      absl::FunctionRef<absl::Status(const Cell&)> run);

struct AnsweredCell {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<RoundSet> set;
  std::vector<RoundAnswer> answers;  // of every round, run once
  Measurement measurement;           // of the cell, without times
};
absl::StatusOr<AnsweredCell> AnswerCell(const Cell& cell, int32_t threads,
                                        std::unique_ptr<Backend> backend, PoolCache* pools);

}  // namespace specd::bench
