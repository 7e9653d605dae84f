// GpuSuite measures rounds on a device for `specd-bench gpu`, beside a read of the same rows in the
// same replay of a CUDA graph.
//
// For every combination that was asked for, the suite makes the rounds and lets the CPU answer
// them. It brings the rounds to the device, compares the device's answers with the CPU's to the
// bit, and then times replays. A replay runs every round and then reads the rows of every round;
// one sample is the mean of a replay.
//
// Cold rounds run in turn over so many rows that the L2 cache forgets a round before it comes
// again. Warm rounds repeat the first round. Times are those of events on the device. The suite
// also gives the wall time of a whole round as a backend runs it. The suite runs on the calling
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/gpu_driver.h"
#include "tools/bench/cells.h"
#include "tools/bench/gpu_rounds.h"
#include "tools/bench/probes/gpu_probes.h"

namespace specd::bench {

// A driver that uses a device, and its probes, which are loaded.
struct OpenGpu {
  std::unique_ptr<GpuDriver> driver;
  std::unique_ptr<GpuProbes> probes;
  GpuDevice device;
};

// FAILED_PRECONDITION if there is no device. `driver` may be null, as in a build without nvcc;
// make_probes is not called then.
absl::StatusOr<OpenGpu> OpenFirstGpu(
    std::unique_ptr<GpuDriver> driver,
    absl::FunctionRef<std::unique_ptr<GpuProbes>(GpuDriver* driver)> make_probes);

class GpuSuite {
 public:
  // Uses the cases, sizes, types, rows and seconds of the options, and their threads for the CPU.
  // The backend of the hooks runs rounds on the suite's device. `gpu` outlives the suite.
  GpuSuite(const VerifyOptions& options, const OpenGpu& gpu, RoundHooks hooks)
      : options_(options),
        device_(gpu.device),
        driver_(gpu.driver.get()),
        probes_(gpu.probes.get()),
        hooks_(std::move(hooks)),
        pools_(options.shape, options.rows_path) {}

  absl::Status Run();

 private:
  absl::Status RunCell(const Cell& cell);
  absl::Status Time(const Cell& cell, const std::vector<RoundAnswer>& expected, GpuRounds* rounds,
                    Measurement* measurement);
  // Times the cold and the warm state.
  absl::Status TimeWhole(const Cell& cell, const AnsweredCell& answered, const GpuRounds& rounds,
                         Measurement* cold, Measurement* warm);

  VerifyOptions options_;
  GpuDevice device_;
  GpuDriver* driver_;
  GpuProbes* probes_;
  RoundHooks hooks_;
  PoolCache pools_;
};

}  // namespace specd::bench
