// GpuProbes measures a device for MeasureGpu: events in captured graphs, and a kernel that no
// round runs.
//
// Probes work on the CUDA stream of a GpuDriver, in order with its launches. One thread at a time
// uses both. Implementations: cuda_probes.cc over the CUDA runtime; tests/tools/fake_gpu_probes.h
// in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/core/gpu_driver.h"
#include "kernels/core/gpu_result.h"

namespace specd::bench {

// The floor of kernels that read rows: the rows are read, and the elements are not used. An array
// in device memory names the rows. If the ends of a row are not a whole kReadUnit, their bytes are
// not read.
struct ReadPlan {
  const void* const* rows = nullptr;
  int32_t num_rows = 0;
  int64_t row_bytes = 0;
  uint32_t* sink = nullptr;  // one word
};
inline constexpr size_t kReadUnit = 16;

class GpuProbes {
 public:
  // Points in time on the device.
  static constexpr size_t kNumEvents = 3;

  virtual ~GpuProbes() = default;

  // Brings the kernels to the driver's device. Call after GpuDriver::UseDevice, and before any
  // other function.
  virtual GpuResult Load() = 0;

  // Enqueues a read of the rows.
  virtual GpuResult LaunchRead(const ReadPlan& plan) = 0;

  // Every launch of the graph that the driver captures records the event. REQUIRES: the call comes
  // between BeginCapture and EndCapture.
  virtual GpuResult RecordEvent(size_t event) = 0;
  // From an event to the next. Call after GpuDriver::Synchronize.
  virtual GpuResult ElapsedUs(size_t event, double* elapsed_us) = 0;
};

// The driver is one of MakeCudaDriver and outlives the probes. Null in a build without nvcc.
std::unique_ptr<GpuProbes> MakeCudaProbes(GpuDriver* driver);

}  // namespace specd::bench
