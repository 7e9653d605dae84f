// Cells are the measurements that `verify` and `gpu` were asked for: a case, a type and a shape
// each. AnsweredCell is one of them with its rounds and their answers, and Measurement has its
// times, the times of its bound or peer, and their ratio.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "tools/bench/output.h"
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
};

std::string Describe(const Cell& cell);

// The names of baselines: a read of the rows that a round needs; for trees, chains over the rows
// that they read; llama.cpp, which takes the cases of HasPeer on rows of fp32.
inline constexpr std::string_view kRead = "read";
inline constexpr std::string_view kChainOfTree = "chain";
inline constexpr std::string_view kLlama = "llama";

struct Measurement {
  Cell cell;
  int32_t threads = 1;  // 0: on a device
  bool cold = true;

  Summary time_us = {};
  Summary base_us = {};
  std::string_view ratio_of = {};  // kRead, kChainOfTree or kLlama
  double ratio = 0;                // of the medians: case / read or chain, or peer / case
  double ratio_p10 = 0;            // over neighbouring pairs
  double ratio_p90 = 0;
  double base_gigabytes_per_s = 0;  // for a read
  double rows_read = 0;             // of a sequence, by a round; 0: not known
  double target = 0;                // the ratio to stay below (read) or above (a peer); 0: none
  double target_us = 0;             // or the time to stay below; 0: none

  int64_t num_checked = 0;  // compared tokens of the timed rounds
  ForeignLoad load = {};

  bool IsSpeedUp() const { return ratio_of == kLlama; }
  // A target in us, or of the ratio.
  Goal goal() const {
    if (target_us > 0) return {.measured = time_us.median, .bound = target_us, .unit = "us"};
    return {.measured = ratio, .bound = target, .is_least = IsSpeedUp()};
  }
  // Fills the times and ratios. Entry i of one was measured right beside entry i of the other.
  // REQUIRES: ratio_of is set.
  void SetTimes(const Times& case_times_us, const Times& base_times_us);
  // Fills what follows from the number of rows that a round needs. REQUIRES: SetTimes.
  void SetRows(double rows_of_round);
};
Line LineOf(const Measurement& measurement);

// The last pools of rows, because neighbouring measurements share pools.
class PoolCache {
 public:
  // Null, of a drafter: the case has no draft rows. Valid until the next call with this `drafter`.
  // RESOURCE_EXHAUSTED if the pool would not fit into memory.
  absl::StatusOr<const RowPool*> Get(const Cell& cell, bool drafter);

 private:
  std::optional<RowPool> target_;
  std::optional<RowPool> draft_;
};

// The flags that `verify` and `gpu` share, with the defaults of each.
std::vector<Flag> RoundFlags(std::string batches, std::string quick_batches, std::string drafts);
int32_t ThreadsOf(const Flags& flags);

// All combinations that were asked for and make sense, one round each. Sampled drafts need a draft.
std::vector<Cell> CellsOf(const Flags& flags, const std::vector<VerifyCase>& cases,
                          absl::FunctionRef<bool(const VerifyCase&, DType)> supports);

// Measures each of the cells, in so many rounds, and prints the results as they come.
absl::StatusOr<std::vector<Measurement>> RunCells(
    std::vector<Cell> cells, Output* out, absl::FunctionRef<int32_t(const Cell&)> num_rounds,
    absl::FunctionRef<absl::StatusOr<Measurement>(const Cell&)> run);

struct AnsweredCell {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<RoundSet> set;
  std::vector<RoundAnswer> answers;  // of every round, run once
  Measurement measurement;           // of the cell, without times
};
absl::StatusOr<AnsweredCell> AnswerCell(const Cell& cell, int32_t threads,
                                        std::unique_ptr<Backend> backend, PoolCache* pools);

}  // namespace specd::bench
