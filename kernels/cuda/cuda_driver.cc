#include "kernels/cuda/cuda_driver.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/cuda/round_kernels.h"

namespace specd {

namespace {

GpuResult ResultOf(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return GpuResult::Ok();
  return GpuResult::Error(
      fmt::format("{}: {} ({})", call, cudaGetErrorName(error), cudaGetErrorString(error)));
}

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

class CudaDriver final : public GpuDriver {
 public:
  CudaDriver() = default;
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;
  ~CudaDriver() override {
    if (own_ == nullptr) return;
    const GpuResult result = ResultOf(cudaStreamDestroy(own_), "cudaStreamDestroy");
    if (!result.ok()) fmt::print(stderr, "specd: closing the CUDA driver: {}\n", result.text());
  }

  GpuResult ListDevices(std::vector<GpuDevice>* devices) override {
    devices->clear();
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorNoDevice) return GpuResult::Ok();
    if (error != cudaSuccess) return ResultOf(error, "cudaGetDeviceCount");
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp properties;
      const GpuResult result =
          ResultOf(cudaGetDeviceProperties(&properties, i), "cudaGetDeviceProperties");
      if (!result.ok()) return result;
      devices->push_back({.name = properties.name,
                          .uuid = UuidText(properties.uuid),
                          .l2_bytes = properties.l2CacheSize});
    }
    return GpuResult::Ok();
  }

  GpuResult UseDevice(size_t index) override {
    const int device = static_cast<int>(index);
    GpuResult result = ResultOf(cudaSetDevice(device), "cudaSetDevice");
    if (result.ok()) {
      result =
          ResultOf(cudaDeviceGetAttribute(&num_processors_, cudaDevAttrMultiProcessorCount, device),
                   "cudaDeviceGetAttribute");
    }
    if (result.ok()) result = ResultOf(LoadFetchKernel(), "loading of FetchKernel");
    if (result.ok()) result = ResultOf(LoadReadKernel(), "loading of ReadRowsKernel");
    if (result.ok()) result = ResultOf(LoadRoundKernel(), "loading of RunRoundKernel");
    if (result.ok()) result = ResultOf(LoadTransformKernel(), "loading of TransformRowsKernel");
    if (!result.ok() || own_ != nullptr) return result;
    return ResultOf(cudaStreamCreateWithFlags(&own_, cudaStreamNonBlocking),
                    "cudaStreamCreateWithFlags");
  }

  GpuResult UseStream(void* stream, size_t* device) override {
    int index = 0;
    const GpuResult result = ResultOf(
        cudaStreamGetDevice(static_cast<cudaStream_t>(stream), &index), "cudaStreamGetDevice");
    if (!result.ok()) return result;
    *device = static_cast<size_t>(index);
    callers_ = static_cast<cudaStream_t>(stream);
    return result;
  }

  GpuResult Allocate(size_t size_bytes, void** memory) override {
    return ResultOf(cudaMalloc(memory, size_bytes), "cudaMalloc");
  }
  GpuResult Free(void* memory) override { return ResultOf(cudaFree(memory), "cudaFree"); }

  GpuResult AllocatePinned(size_t size_bytes, void** memory) override {
    void* host = nullptr;
    GpuResult result =
        ResultOf(cudaHostAlloc(&host, size_bytes, cudaHostAllocMapped), "cudaHostAlloc");
    if (!result.ok()) return result;
    void* device = nullptr;
    result = ResultOf(cudaHostGetDevicePointer(&device, host, 0), "cudaHostGetDevicePointer");
    // With one address space for host and device, which every 64-bit Linux has, they are the same.
    if (result.ok() && device != host) {
      result = GpuResult::Error("cudaHostGetDevicePointer: the device has another address for it");
    }
    if (result.ok()) {
      *memory = host;
      return result;
    }
    const GpuResult freed = FreePinned(host);
    if (!freed.ok()) fmt::print(stderr, "specd: freeing pinned memory: {}\n", freed.text());
    return result;
  }
  GpuResult FreePinned(void* memory) override {
    return ResultOf(cudaFreeHost(memory), "cudaFreeHost");
  }

  GpuResult ToDevice(void* device, const void* host, size_t size_bytes) override {
    return ResultOf(cudaMemcpyAsync(device, host, size_bytes, cudaMemcpyHostToDevice, stream()),
                    "cudaMemcpyAsync to the device");
  }
  GpuResult ToHost(void* host, const void* device, size_t size_bytes) override {
    return ResultOf(cudaMemcpyAsync(host, device, size_bytes, cudaMemcpyDeviceToHost, stream()),
                    "cudaMemcpyAsync to the host");
  }

  GpuResult LaunchFetch(const FetchPlan& plan) override {
    return ResultOf(EnqueueFetch(plan, stream()), "launch of FetchKernel");
  }
  GpuResult LaunchRound(const FusedRound* round, const RoundBounds& bounds) override {
    return ResultOf(EnqueueRound(round, bounds, num_processors_, stream()),
                    "launch of RunRoundKernel");
  }
  GpuResult LaunchTransforms(const TransformBatch& batch, void* workspaces) override {
    return ResultOf(EnqueueTransforms(batch, workspaces, stream()),
                    "launch of TransformRowsKernel");
  }
  GpuResult LaunchRead(const ReadPlan& plan) override {
    return ResultOf(EnqueueRead(plan, num_processors_, stream()), "launch of ReadRowsKernel");
  }

  // On the driver's own stream, because the caller's may be one that cannot be captured. The mode
  // is that of this thread: what the engine's other threads do at the same time is theirs.
  GpuResult BeginCapture() override {
    const GpuResult result = ResultOf(
        cudaStreamBeginCapture(own_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    capturing_ = result.ok();
    return result;
  }
  GpuResult EndCapture(Graph** graph) override {
    capturing_ = false;
    *graph = nullptr;
    cudaGraph_t captured = nullptr;
    GpuResult result = ResultOf(cudaStreamEndCapture(own_, &captured), "cudaStreamEndCapture");
    if (!result.ok()) return result;
    cudaGraphExec_t made = nullptr;
    result = ResultOf(cudaGraphInstantiate(&made, captured, 0), "cudaGraphInstantiate");
    const GpuResult destroyed = ResultOf(cudaGraphDestroy(captured), "cudaGraphDestroy");
    if (!result.ok()) return result;
    result = destroyed;
    // Or the first launch would bring it to the device.
    if (result.ok()) result = ResultOf(cudaGraphUpload(made, stream()), "cudaGraphUpload");
    if (result.ok()) {
      *graph = reinterpret_cast<Graph*>(made);
      return result;
    }
    const GpuResult ended = ResultOf(cudaGraphExecDestroy(made), "cudaGraphExecDestroy");
    if (!ended.ok()) fmt::print(stderr, "specd: ending a graph: {}\n", ended.text());
    return result;
  }

  GpuResult LaunchGraph(Graph* graph) override {
    return ResultOf(cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(graph), stream()),
                    "cudaGraphLaunch");
  }
  GpuResult DestroyGraph(Graph* graph) override {
    if (graph == nullptr) return GpuResult::Ok();
    return ResultOf(cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(graph)),
                    "cudaGraphExecDestroy");
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
  // As a node of its own in a graph; without the flag a capture would only note an order.
  GpuResult RecordEvent(Event* event) override {
    return ResultOf(
        cudaEventRecordWithFlags(reinterpret_cast<cudaEvent_t>(event), stream(),
                                 capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault),
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

  GpuResult Synchronize() override {
    return ResultOf(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  }

 private:
  cudaStream_t stream() const { return capturing_ || callers_ == nullptr ? own_ : callers_; }

  cudaStream_t own_ = nullptr;
  cudaStream_t callers_ = nullptr;
  bool capturing_ = false;
  int num_processors_ = 1;
};

}  // namespace

std::unique_ptr<GpuDriver> MakeCudaDriver() { return std::make_unique<CudaDriver>(); }

}  // namespace specd
