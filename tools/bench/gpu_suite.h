// MeasureGpu measures rounds on a device for `specd-bench gpu`, beside a read of the same rows in
// the same replay of a CUDA graph.
//
// For every combination that was asked for, it makes the rounds and lets the CPU answer them. It
// brings the rounds to the device, compares the device's answers with the CPU's to the bit, and
// then times replays. A replay runs every round and then reads the rows of every round; one sample
// is the mean of a replay. The rounds lie over so many rows that the L2 cache forgets a round
// before it comes again. Times are those of events on the device. It runs on the calling thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/core/gpu_driver.h"
#include "tools/bench/cells.h"
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

// The flags are those of GpuCommand; their threads are the CPU's.
absl::StatusOr<std::vector<Measurement>> MeasureGpu(const Flags& flags, const OpenGpu& gpu,
                                                    Output* out);

}  // namespace specd::bench
