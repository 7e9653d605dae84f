// CapturedGraph owns a captured list of launches for CudaBackend, which enqueues all of them with
// one call.
//
// Not for several threads at once; the driver must live longer.
#pragma once

#include "absl/functional/function_ref.h"
#include "kernels/core/gpu_driver.h"

namespace specd {

class CapturedGraph {
 public:
  CapturedGraph() = default;
  CapturedGraph(CapturedGraph&& other) noexcept;
  CapturedGraph& operator=(CapturedGraph&&) = delete;
  ~CapturedGraph();

  // Keeps the work that `enqueue` enqueues instead of running it. Returns its error, or the
  // driver's. REQUIRES: the first call.
  GpuResult Capture(GpuDriver* driver, absl::FunctionRef<GpuResult()> enqueue);

  // REQUIRES: Capture succeeded.
  GpuResult Launch() const { return driver_->LaunchGraph(graph_); }

 private:
  GpuDriver* driver_ = nullptr;
  GpuDriver::Graph* graph_ = nullptr;
};

}  // namespace specd
