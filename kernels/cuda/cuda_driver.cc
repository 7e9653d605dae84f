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
    if (stream_ == nullptr) return;
    const GpuResult result = ResultOf(cudaStreamDestroy(stream_), "cudaStreamDestroy");
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
      devices->push_back({properties.name, UuidText(properties.uuid)});
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
    if (!result.ok() || stream_ != nullptr) return result;
    return ResultOf(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                    "cudaStreamCreateWithFlags");
  }

  GpuResult Allocate(size_t size_bytes, void** memory) override {
    return ResultOf(cudaMalloc(memory, size_bytes), "cudaMalloc");
  }
  GpuResult Free(void* memory) override { return ResultOf(cudaFree(memory), "cudaFree"); }

  GpuResult ToDevice(void* device, const void* host, size_t size_bytes) override {
    return ResultOf(cudaMemcpyAsync(device, host, size_bytes, cudaMemcpyHostToDevice, stream_),
                    "cudaMemcpyAsync to the device");
  }
  GpuResult ToHost(void* host, const void* device, size_t size_bytes) override {
    return ResultOf(cudaMemcpyAsync(host, device, size_bytes, cudaMemcpyDeviceToHost, stream_),
                    "cudaMemcpyAsync to the host");
  }

  GpuResult LaunchRound(const FusedRound& round) override {
    return ResultOf(EnqueueRound(round, num_processors_, stream_), "launch of RunRoundKernel");
  }
  GpuResult LaunchTransforms(const TransformBatch& batch, void* workspaces) override {
    return ResultOf(EnqueueTransforms(batch, workspaces, stream_), "launch of TransformRowsKernel");
  }

  GpuResult Synchronize() override {
    return ResultOf(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  cudaStream_t stream_ = nullptr;
  int num_processors_ = 1;
};

}  // namespace

std::unique_ptr<GpuDriver> MakeCudaDriver() { return std::make_unique<CudaDriver>(); }

}  // namespace specd
