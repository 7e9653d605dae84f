#include "kernels/cuda/cuda_driver.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/cuda/cuda_result.h"
#include "kernels/cuda/round_kernels.h"

namespace specd {

namespace {

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
    GpuResult result = GpuResult::Ok();
    if (own_ != nullptr) {
      result = DuringCaptures("cudaStreamDestroy", [&] { return cudaStreamDestroy(own_); });
    }
    for (const cudaEvent_t event : {marker_, mark_}) {
      if (!result.ok() || event == nullptr) continue;
      result = DuringCaptures("cudaEventDestroy", [&] { return cudaEventDestroy(event); });
    }
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
    device_ = static_cast<int>(index);
    GpuResult result = OnDevice("cudaDeviceGetAttribute", [&] {
      return cudaDeviceGetAttribute(&shape_.num_processors, cudaDevAttrMultiProcessorCount,
                                    device_);
    });
    if (result.ok()) {
      result =
          OnDevice("loading of RunDeferredKernel", [&] { return LoadDeferredKernel(&shape_); });
    }
    if (result.ok()) result = OnDevice("loading of FetchKernel", LoadFetchKernel);
    if (result.ok())
      result = OnDevice("loading of RunRecordKernel", [&] { return LoadRecordKernel(&shape_); });
    if (result.ok()) result = OnDevice("loading of RunResidualKernel", LoadResidualKernel);
    if (result.ok()) result = OnDevice("loading of ResolveKernel", LoadResolveKernel);
    if (result.ok())
      result = OnDevice("loading of RunRoundKernel", [&] { return LoadRoundKernel(&shape_); });
    if (result.ok()) result = OnDevice("loading of the staged kernels", LoadStagedKernels);
    if (result.ok()) result = OnDevice("loading of TransformRowsKernel", LoadTransformKernel);
    if (result.ok() && marker_ == nullptr) {
      result = OnDevice("cudaEventCreateWithFlags",
                        [&] { return cudaEventCreateWithFlags(&marker_, cudaEventDisableTiming); });
    }
    if (!result.ok() || own_ != nullptr) return result;
    return OnDevice("cudaStreamCreateWithFlags",
                    [&] { return cudaStreamCreateWithFlags(&own_, cudaStreamNonBlocking); });
  }

  size_t device_in_use() const override { return static_cast<size_t>(device_); }

  // The device must not be made current first: a default CUDA stream would then belong to it.
  GpuResult FindDevice(void* stream, size_t* device) override {
    int index = 0;
    const GpuResult result = ResultOf(
        cudaStreamGetDevice(static_cast<cudaStream_t>(stream), &index), "cudaStreamGetDevice");
    if (result.ok()) *device = static_cast<size_t>(index);
    return result;
  }

  GpuResult UseStream(void* stream, size_t* device) override {
    const GpuResult result = FindDevice(stream, device);
    if (!result.ok()) return result;
    callers_ = static_cast<cudaStream_t>(stream);
    device_ = static_cast<int>(*device);
    return result;
  }

  GpuResult IsCapturing(bool* is_capturing) override {
    *is_capturing = false;
    return callers_ == nullptr ? GpuResult::Ok() : AskWhetherCapturing(callers_, is_capturing);
  }

  GpuResult Mark(void* stream, bool* is_capturing) override {
    const auto on = static_cast<cudaStream_t>(stream);
    GpuResult result = AskWhetherCapturing(on, is_capturing);
    if (!result.ok() || *is_capturing) return result;
    if (mark_ == nullptr) {
      result = DuringCaptures("cudaEventCreateWithFlags", [&] {
        return cudaEventCreateWithFlags(&mark_, cudaEventDisableTiming);
      });
    }
    if (!result.ok()) return result;
    return OnDevice("cudaEventRecord", [&] { return cudaEventRecord(mark_, on); });
  }
  GpuResult EnqueueAfterMark() override {
    GpuResult result = GpuResult::Ok();
    if (mark_ != nullptr) {
      result = OnDevice("cudaStreamWaitEvent", [&] { return cudaStreamWaitEvent(own_, mark_, 0); });
    }
    if (result.ok()) borrowed_ = own_;
    return result;
  }

  void EnqueueOn(void* stream) override { borrowed_ = static_cast<cudaStream_t>(stream); }
  void* launch_stream() const override { return stream(); }

  GpuResult Allocate(size_t size_bytes, void** memory) override {
    return DuringCaptures("cudaMalloc", [&] { return cudaMalloc(memory, size_bytes); });
  }
  // The call works and waits on the driver's own CUDA stream; no CUDA stream of the caller's is
  // touched.
  GpuResult AllocateZeroed(size_t size_bytes, void** memory) override {
    void* made = nullptr;
    GpuResult result = Allocate(size_bytes, &made);
    if (!result.ok()) return result;
    result = DuringCaptures("cudaMemsetAsync",
                            [&] { return cudaMemsetAsync(made, 0, size_bytes, own_); });
    if (result.ok()) {
      result = DuringCaptures("cudaStreamSynchronize", [&] { return cudaStreamSynchronize(own_); });
    }
    if (result.ok()) {
      *memory = made;
      return result;
    }
    const GpuResult freed = Free(made);
    if (!freed.ok()) fmt::print(stderr, "specd: freeing device memory: {}\n", freed.text());
    return result;
  }
  GpuResult Free(void* memory) override {
    return DuringCaptures("cudaFree", [&] { return cudaFree(memory); });
  }

  GpuResult AllocatePinned(size_t size_bytes, void** memory) override {
    void* host = nullptr;
    GpuResult result = DuringCaptures(
        "cudaHostAlloc", [&] { return cudaHostAlloc(&host, size_bytes, cudaHostAllocMapped); });
    if (!result.ok()) return result;
    void* device = nullptr;
    result = OnDevice("cudaHostGetDevicePointer",
                      [&] { return cudaHostGetDevicePointer(&device, host, 0); });
    // On every 64-bit Linux, host and device share one address space, so the addresses are equal.
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
    return DuringCaptures("cudaFreeHost", [&] { return cudaFreeHost(memory); });
  }

  GpuResult ToDevice(void* device, const void* host, size_t size_bytes) override {
    return OnDevice("cudaMemcpyAsync to the device", [&] {
      return cudaMemcpyAsync(device, host, size_bytes, cudaMemcpyHostToDevice, stream());
    });
  }
  GpuResult ToHost(void* host, const void* device, size_t size_bytes) override {
    return OnDevice("cudaMemcpyAsync to the host", [&] {
      return cudaMemcpyAsync(host, device, size_bytes, cudaMemcpyDeviceToHost, stream());
    });
  }

  GpuResult LaunchFetch(const FetchPlan& plan) override {
    return OnDevice("launch of FetchKernel", [&] { return EnqueueFetch(plan, stream()); });
  }
  GpuResult LaunchResolve(const FusedRound* round, const RoundBounds& bounds) override {
    return OnDevice("launch of ResolveKernel",
                    [&] { return EnqueueResolve(round, bounds, shape_.num_processors, stream()); });
  }
  GpuResult LaunchRound(const FusedRound* round, const RoundBounds& bounds) override {
    GpuResult result = OnDevice("launch of RunRoundKernel",
                                [&] { return EnqueueRound(round, bounds, shape_, stream()); });
    if (result.ok() && bounds.num_launches >= 2) {
      result = OnDevice("launch of RunResidualKernel",
                        [&] { return EnqueueResiduals(round, bounds, shape_, stream()); });
    }
    if (result.ok() && bounds.num_launches == 3) {
      result = OnDevice("launch of RunDeferredKernel",
                        [&] { return EnqueueDeferred(round, bounds, shape_, stream()); });
    }
    return result;
  }
  GpuResult LaunchRecord(const FusedRound* round, TokenId* tokens,
                         const RoundBounds& bounds) override {
    return OnDevice("launch of RunRecordKernel",
                    [&] { return EnqueueRecord(round, tokens, bounds, shape_, stream()); });
  }
  GpuResult LaunchTakeStaged(const StagedPlan& plan) override {
    return OnDevice("launch of TakeStagedKernel and FetchStagedKernel",
                    [&] { return EnqueueTakeStaged(plan, stream()); });
  }
  GpuResult LaunchEndStaged(const StagedPlan& plan) override {
    return OnDevice("launch of EndStagedKernel", [&] { return EnqueueEndStaged(plan, stream()); });
  }
  GpuResult LaunchTransforms(const TransformBatch& batch, void* workspaces) override {
    return OnDevice("launch of TransformRowsKernel",
                    [&] { return EnqueueTransforms(batch, workspaces, stream()); });
  }

  // The capture is on the driver's own CUDA stream, because the caller's may be one that cannot be
  // captured. The mode is that of this thread, so other threads of the engine are not restricted.
  GpuResult BeginCapture() override {
    const GpuResult result = OnDevice("cudaStreamBeginCapture", [&] {
      return cudaStreamBeginCapture(own_, cudaStreamCaptureModeThreadLocal);
    });
    capturing_ = result.ok();
    return result;
  }
  GpuResult EndCapture(Graph** graph) override {
    capturing_ = false;
    *graph = nullptr;
    cudaGraph_t captured = nullptr;
    GpuResult result =
        OnDevice("cudaStreamEndCapture", [&] { return cudaStreamEndCapture(own_, &captured); });
    if (!result.ok()) return result;
    cudaGraphExec_t made = nullptr;
    result =
        OnDevice("cudaGraphInstantiate", [&] { return cudaGraphInstantiate(&made, captured, 0); });
    const GpuResult destroyed =
        DuringCaptures("cudaGraphDestroy", [&] { return cudaGraphDestroy(captured); });
    if (!result.ok()) return result;
    result = destroyed;
    // Without the upload, the first launch would bring the graph to the device.
    if (result.ok()) {
      result = OnDevice("cudaGraphUpload", [&] { return cudaGraphUpload(made, stream()); });
    }
    if (result.ok()) {
      *graph = reinterpret_cast<Graph*>(made);
      return result;
    }
    const GpuResult ended =
        DuringCaptures("cudaGraphExecDestroy", [&] { return cudaGraphExecDestroy(made); });
    if (!ended.ok()) fmt::print(stderr, "specd: ending a graph: {}\n", ended.text());
    return result;
  }

  GpuResult LaunchGraph(Graph* graph) override {
    return OnDevice("cudaGraphLaunch", [&] {
      return cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(graph), stream());
    });
  }
  GpuResult DestroyGraph(Graph* graph) override {
    if (graph == nullptr) return GpuResult::Ok();
    return DuringCaptures("cudaGraphExecDestroy", [&] {
      return cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(graph));
    });
  }

  GpuResult Synchronize() override {
    return OnDevice("cudaStreamSynchronize", [&] { return cudaStreamSynchronize(stream()); });
  }

  // A fault ends the whole context. The driver reports the fault when it is asked about unfinished
  // work. cudaPeekAtLastError asks about none, and a CUDA stream without work need not be looked
  // at. The driver's own CUDA stream therefore always has a marker on it, and only Prepare captures
  // that CUDA stream. A working device passes the marker at once, and a failed one never.
  GpuResult Check() override {
    return DuringCaptures("a look at the device", [&] {
      const cudaError_t error = cudaStreamQuery(own_);
      if (error == cudaSuccess) return cudaEventRecord(marker_, own_);
      if (error != cudaErrorNotReady) return error;
      // CUDA keeps this result as the thread's last error, and the thread is the engine's.
      if (cudaPeekAtLastError() == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
      return cudaSuccess;
    });
  }

 private:
  // Makes a call with the device current, as most of CUDA requires, and restores the thread's
  // device. If specd is embedded, the thread is the engine's, and it may not be the one that chose
  // the device.
  template <typename Call>
  GpuResult OnDevice(const char* name, const Call& call) const {
    int before = 0;
    GpuResult result = ResultOf(cudaGetDevice(&before), "cudaGetDevice");
    if (result.ok() && before != device_) {
      result = ResultOf(cudaSetDevice(device_), "cudaSetDevice");
    }
    if (!result.ok()) return result;
    result = ResultOf(call(), name);
    if (before == device_) return result;
    const GpuResult restored = ResultOf(cudaSetDevice(before), "cudaSetDevice");
    return result.ok() ? restored : result;
  }

  // The same for calls that are not allowed while any CUDA stream captures. Our calls do not
  // concern the capture, and the exchanged mode tells CUDA so.
  template <typename Call>
  GpuResult DuringCaptures(const char* name, const Call& call) const {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    GpuResult result =
        ResultOf(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    if (!result.ok()) return result;
    result = OnDevice(name, call);
    const GpuResult restored =
        ResultOf(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    return result.ok() ? restored : result;
  }

  GpuResult AskWhetherCapturing(cudaStream_t stream, bool* is_capturing) const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    bool is_implicit = false;
    const GpuResult result = OnDevice("cudaStreamIsCapturing", [&] {
      const cudaError_t error = cudaStreamIsCapturing(stream, &status);
      // This error comes from the legacy default CUDA stream while a CUDA stream that it waits for
      // captures. A launch would become part of that capture, which is not allowed. CUDA keeps the
      // error as the last one of the engine's thread, so it is cleared here.
      is_implicit = error == cudaErrorStreamCaptureImplicit;
      if (is_implicit && cudaPeekAtLastError() == error) static_cast<void>(cudaGetLastError());
      return is_implicit ? cudaSuccess : error;
    });
    *is_capturing = is_implicit || status != cudaStreamCaptureStatusNone;
    return result;
  }

  cudaStream_t stream() const {
    if (capturing_) return own_;
    if (borrowed_ != nullptr) return borrowed_;
    return callers_ == nullptr ? own_ : callers_;
  }

  cudaStream_t own_ = nullptr;
  cudaStream_t callers_ = nullptr;   // set by UseStream
  cudaStream_t borrowed_ = nullptr;  // set by EnqueueOn
  cudaEvent_t marker_ = nullptr;     // used by Check
  cudaEvent_t mark_ = nullptr;       // set by Mark
  bool capturing_ = false;
  int device_ = 0;
  DeviceShape shape_;
};

}  // namespace

std::unique_ptr<GpuDriver> MakeCudaDriver() { return std::make_unique<CudaDriver>(); }

}  // namespace specd
