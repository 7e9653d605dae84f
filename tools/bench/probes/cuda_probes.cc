#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_result.h"
#include "kernels/cuda/round_kernels.h"
#include "tools/bench/probes/gpu_probes.h"
#include "tools/bench/probes/probe_kernels.h"

namespace specd::bench {
namespace {

class CudaProbes final : public GpuProbes {
 public:
  explicit CudaProbes(const GpuDriver* driver) : driver_(driver) {}
  ~CudaProbes() override {
    for (const cudaEvent_t event : events_) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
  }

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
    for (cudaEvent_t& event : events_) {
      if (result.ok()) result = ResultOf(cudaEventCreate(&event), "cudaEventCreate");
    }
    return result;
  }

  GpuResult LaunchRead(const ReadPlan& plan) override {
    return ResultOf(EnqueueRead(plan, shape_, stream()), "launch of ReadRowsKernel");
  }

  // The flag makes the event a node of the graph; without it, a capture would only note an order.
  GpuResult RecordEvent(size_t event) override {
    return ResultOf(cudaEventRecordWithFlags(events_[event], stream(), cudaEventRecordExternal),
                    "cudaEventRecordWithFlags");
  }
  GpuResult ElapsedUs(size_t event, double* elapsed_us) override {
    float elapsed_ms = 0;
    const GpuResult result =
        ResultOf(cudaEventElapsedTime(&elapsed_ms, events_[event], events_[event + 1]),
                 "cudaEventElapsedTime");
    *elapsed_us = 1000.0 * double{elapsed_ms};
    return result;
  }

 private:
  cudaStream_t stream() const { return static_cast<cudaStream_t>(driver_->launch_stream()); }

  const GpuDriver* driver_;
  DeviceShape shape_;
  cudaEvent_t events_[kNumEvents] = {};
};

}  // namespace

std::unique_ptr<GpuProbes> MakeCudaProbes(GpuDriver* driver) {
  return std::make_unique<CudaProbes>(driver);
}

}  // namespace specd::bench
