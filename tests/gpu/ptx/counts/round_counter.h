// RoundCounter runs the rounds of `specd-bench gpu` over the PTX machine, and counts what they ask
// of a device.
//
// Each round is compared with the CPU's answer to the bit. The counts are those of a cold round:
// nothing was asked for before. Not thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/core/gpu_driver.h"
#include "tests/gpu/ptx/machine/profile.h"
#include "tools/bench/cells.h"
#include "tools/bench/probes/gpu_probes.h"

namespace specd::ptx {

struct RoundCounts {
  int64_t num_elements = 0;  // of the rows that the round's decisions need
  std::vector<LaunchProfile> round = {};
  std::vector<LaunchProfile> read = {};  // of the same rows
};

class RoundCounter {
 public:
  RoundCounter() = default;
  RoundCounter(const RoundCounter&) = delete;
  RoundCounter& operator=(const RoundCounter&) = delete;

  // Call before the next. FAILED_PRECONDITION if the PTX is not where the environment says.
  absl::Status Open();
  absl::StatusOr<RoundCounts> Count(const bench::Cell& cell);

 private:
  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<bench::GpuProbes> probes_;
  bench::PoolCache pools_;
};

}  // namespace specd::ptx
