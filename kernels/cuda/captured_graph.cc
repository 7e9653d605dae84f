#include "kernels/cuda/captured_graph.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/core/check.h"

namespace specd {

CapturedGraph::CapturedGraph(CapturedGraph&& other) noexcept
    : driver_(other.driver_), graph_(std::exchange(other.graph_, nullptr)) {}

CapturedGraph::~CapturedGraph() {
  if (graph_ == nullptr) return;
  const GpuResult result = driver_->DestroyGraph(graph_);
  if (!result.ok()) fmt::print(stderr, "specd: destroying a graph: {}\n", result.text());
}

GpuResult CapturedGraph::Capture(GpuDriver* driver, absl::FunctionRef<GpuResult()> enqueue) {
  SPECD_CHECK(graph_ == nullptr);
  driver_ = driver;
  GpuResult result = driver->BeginCapture();
  if (!result.ok()) return result;
  result = enqueue();
  // Needed even after an error: until EndCapture the driver enqueues nothing.
  const GpuResult ended = driver->EndCapture(&graph_);
  return result.ok() ? ended : result;
}

}  // namespace specd
