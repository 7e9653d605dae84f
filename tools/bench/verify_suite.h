// VerifySuite measures rounds on a backend for `specd-bench verify`, beside a read of the same
// rows.
//
// For every combination that was asked for, the suite makes the rows and lets the backend run every
// round once. It compares the tokens with the reference. Then it times floor and case in turn until
// the time is used. A round whose answer differs from its first answer is an error. The suite runs
// on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "tools/bench/machine.h"
#include "tools/bench/measurement.h"
#include "tools/bench/pool_cache.h"
#include "tools/bench/round_set.h"
#include "tools/bench/rows.h"
#include "tools/bench/suite.h"
#include "tools/bench/verify_case.h"

namespace specd::bench {

// The comparison of a round.
enum class Baseline {
  kRead,      // a read of the rows that it needs, with as many threads
  kTextbook,  // TextbookSampler on the same rounds; cases that it does not support are left out
  kLlama,     // llama.cpp's loop, for the same cases on rows of fp32; see llama_loop.h
};

inline constexpr std::string_view kBaselineNames[] = {"read", "textbook", "llama"};
inline std::string_view BaselineName(Baseline baseline) {
  return kBaselineNames[static_cast<size_t>(baseline)];
}

struct VerifyOptions {
  Baseline baseline = Baseline::kRead;
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

// A measurement of the cell, without times.
Measurement MeasurementOf(const Cell& cell, const Pools& pools);
absl::Status Prepare(const Cell& cell, int32_t threads, Backend* backend);

// All combinations that were asked for and make sense, one round each. Sampled drafts need a draft.
std::vector<Cell> CellsOf(const VerifyOptions& options,
                          absl::FunctionRef<bool(const VerifyCase&, DType)> supports);

class VerifySuite {
 public:
  struct Hooks {
    std::function<absl::StatusOr<std::unique_ptr<Backend>>()> make_backend;
    std::function<void(std::string_view)> on_progress;  // is told each piece of work
    std::function<void(const Measurement&)> on_result;
  };

  VerifySuite(const VerifyOptions& options, const Machine& machine, Hooks hooks)
      : options_(options),
        machine_(machine),
        hooks_(std::move(hooks)),
        pools_(options.shape, options.rows_path) {}

  absl::Status Run();

 private:
  std::vector<Cell> Cells() const;
  int32_t NumRounds(const Cell& cell) const;
  absl::Status RunCell(const Cell& cell);
  absl::Status Time(const Cell& cell, const RoundSet& set, const std::vector<RoundAnswer>& answers,
                    Backend* backend, Measurement* measurement);

  VerifyOptions options_;
  Machine machine_;
  Hooks hooks_;
  PoolCache pools_;
};

}  // namespace specd::bench
