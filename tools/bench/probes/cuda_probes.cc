#include "tools/bench/probes/cuda_probes.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_result.h"
#include "kernels/cuda/round_kernels.h"
#include "tools/bench/probes/probe_kernels.h"

namespace specd::bench {
namespace {

class CudaProbes final : public GpuProbes {
 public:
  explicit CudaProbes(const GpuDriver* driver) : driver_(driver) {}

  // The device becomes the thread's: specd-bench has no other.
  GpuResult Load() override {
    const auto device = static_cast<int>(driver_->device_in_use());
    GpuResult result = ResultOf(cudaSetDevice(device), "cudaSetDevice");
    if (result.ok()) {
      result = ResultOf(
          cudaDeviceGetAttribute(&shape_.num_processors, cudaDevAttrMultiProcessorCount, device),
          "cudaDeviceGetAttribute");
    }
    if (result.ok()) result = ResultOf(LoadRoundKernel(&shape_), "loading of RunRoundKernel");
    if (result.ok()) result = ResultOf(LoadReadKernel(), "loading of ReadRowsKernel");
    return result;
  }

  GpuResult LaunchRead(const ReadPlan& plan) override {
    return ResultOf(EnqueueRead(plan, shape_, stream()), "launch of ReadRowsKernel");
  }

  GpuResult CreateEvent(Event** event) override {
    cudaEvent_t made = nullptr;
    const GpuResult result = ResultOf(cudaEventCreate(&made), "cudaEventCreate");
    *event = reinterpret_cast<Event*>(made);
    return result;
  }
  GpuResult DestroyEvent(Event* event) override {
    return ResultOf(cudaEventDestroy(reinterpret_cast<cudaEvent_t>(event)), "cudaEventDestroy");
  }
  // The flag makes the event a node of the graph; without it, a capture would only note an order.
  GpuResult RecordEvent(Event* event) override {
    return ResultOf(cudaEventRecordWithFlags(reinterpret_cast<cudaEvent_t>(event), stream(),
                                             cudaEventRecordExternal),
                    "cudaEventRecordWithFlags");
  }
  GpuResult ElapsedUs(Event* start, Event* end, double* elapsed_us) override {
    float elapsed_ms = 0;
    const GpuResult result =
        ResultOf(cudaEventElapsedTime(&elapsed_ms, reinterpret_cast<cudaEvent_t>(start),
                                      reinterpret_cast<cudaEvent_t>(end)),
                 "cudaEventElapsedTime");
    *elapsed_us = 1000.0 * double{elapsed_ms};
    return result;
  }

 private:
  cudaStream_t stream() const { return static_cast<cudaStream_t>(driver_->launch_stream()); }

  const GpuDriver* driver_;
  DeviceShape shape_;
};

}  // namespace

std::unique_ptr<GpuProbes> MakeCudaProbes(GpuDriver* driver) {
  return std::make_unique<CudaProbes>(driver);
}

}  // namespace specd::bench
