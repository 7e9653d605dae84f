// CapturedGraph: owns a list of launches that a GpuDriver keeps ready, so that enqueuing all of
// them is one call.
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

  // Keeps what `enqueue` enqueues instead of running it. Its error, or the driver's. REQUIRES: only
  // once.
  GpuResult Capture(GpuDriver* driver, absl::FunctionRef<GpuResult()> enqueue);

  // REQUIRES: Capture succeeded.
  GpuResult Launch() const { return driver_->LaunchGraph(graph_); }

 private:
  GpuDriver* driver_ = nullptr;
  GpuDriver::Graph* graph_ = nullptr;
};

}  // namespace specd
