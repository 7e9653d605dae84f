// WholeRounds times rounds as a backend runs them, for GpuSuite, as the calling thread sees them.
//
// The launches of GpuRounds are the device's work once all data is there. Here a round begins with
// its tasks in host memory and its rows on the device, and ends when its answer is in host memory.
// Tasks are staged, a CUDA graph is launched, its end is awaited, and the answer is copied back.
// Rounds and backend must outlive it. It runs on the calling thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "tools/bench/gpu_rounds.h"
#include "tools/bench/measurement.h"

namespace specd::bench {

class WholeRounds {
 public:
  // `expected` has the answers to all rounds. REQUIRES: Load of the rounds succeeded. The backend
  // is prepared for their shape and sees their memory.
  WholeRounds(const RoundSet& set, const GpuRounds& rounds,
              const std::vector<RoundAnswer>& expected, Backend* backend)
      : set_(set), rounds_(rounds), expected_(expected), backend_(backend) {}

  // Runs the first `num_rounds` once, untimed, and then in turn until the seconds are over. A round
  // that fails, or whose answer is not the expected one, is an error.
  absl::StatusOr<Summary> Time(int32_t num_rounds, double seconds);

 private:
  absl::StatusOr<double> RunOnce(int32_t round);  // in us

  const RoundSet& set_;
  const GpuRounds& rounds_;
  const std::vector<RoundAnswer>& expected_;
  Backend* backend_;
};

}  // namespace specd::bench
