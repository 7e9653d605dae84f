// RoundCounter runs the rounds of `specd-bench gpu` over the PTX machine, and counts what they ask
// of a device.
//
// Each round is compared with the CPU's answer to the bit. The counts are those of a cold round:
// nothing was asked for before. Not thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "kernels/core/gpu_driver.h"
#include "tools/bench/cells.h"
#include "tools/bench/probes/gpu_probes.h"
#include "tools/bench/ptx_counts.h"

namespace specd::ptx {

class RoundCounter {
 public:
  RoundCounter() = default;
  RoundCounter(const RoundCounter&) = delete;
  RoundCounter& operator=(const RoundCounter&) = delete;

  // Call before the next. FAILED_PRECONDITION if the PTX is not where the environment says.
  absl::Status Open();
  absl::StatusOr<bench::RoundCounts> Count(const bench::Cell& cell);

 private:
  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<bench::GpuProbes> probes_;
  bench::PoolCache pools_{bench::RowShape::kLlm, ""};
};

}  // namespace specd::ptx
