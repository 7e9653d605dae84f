#include "tests/gpu/ptx/runtime/pretended_device.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace specd::ptx {

namespace {

int NumberOf(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::string TextOf(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? std::string() : text;
}

}  // namespace

PretendedDevice& PretendedDevice::Get() {
  static auto* const device = new PretendedDevice;  // kernels are registered before main
  return *device;
}

PretendedDevice::PretendedDevice()
    : arch_(NumberOf("SPECD_PTX_ARCH", 90)),
      num_processors_(NumberOf("SPECD_PTX_PROCESSORS", 2)),
      options_{.seed = static_cast<uint64_t>(NumberOf("SPECD_PTX_SEED", 1)),
               .resident_clusters = NumberOf("SPECD_PTX_CLUSTERS", 4),
               .quantum = NumberOf("SPECD_PTX_QUANTUM", 500),
               .has_rough_reciprocals = NumberOf("SPECD_PTX_ROUGH", 0) != 0,
               .poisons_registers = NumberOf("SPECD_PTX_POISON", 0) != 0},
      worker_(options_.seed) {
  streams_[cudaStreamLegacy] = std::make_unique<Stream>();
  // The work that is left at the end still runs, and says what fails.
  std::atexit([] { Get().worker_.AwaitAll(); });
}

void PretendedDevice::RegisterKernel(const void* stub, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  names_[stub] = name;
}

bool PretendedDevice::OpenFiles() {
  if (files_ != nullptr) return true;
  absl::StatusOr<std::unique_ptr<PtxFiles>> files = PtxFiles::Open(TextOf("SPECD_PTX_FOLDER"));
  if (!files.ok()) {
    worker_.Fail(files.status());
    return false;
  }
  files_ = std::move(*files);
  return true;
}

const Function* PretendedDevice::FindKernel(const void* stub) {
  if (const auto known = kernels_.find(stub); known != kernels_.end()) return known->second;
  const auto name = names_.find(stub);
  if (name == names_.end() || !OpenFiles()) return nullptr;
  const absl::StatusOr<const Function*> kernel = files_->Find(name->second);
  if (!kernel.ok()) {
    worker_.Fail(kernel.status());
    return nullptr;
  }
  if (*kernel != nullptr) kernels_[stub] = *kernel;
  return *kernel;
}

PretendedDevice::Stream* PretendedDevice::FindStream(cudaStream_t stream) {
  const auto found = streams_.find(stream == nullptr ? cudaStreamLegacy : stream);
  return found == streams_.end() ? nullptr : found->second.get();
}

cudaError_t PretendedDevice::CheckKernel(const void* stub) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto name = names_.find(stub);
  const bool has = name != names_.end() && OpenFiles() && files_->Has(name->second);
  return has ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

cudaError_t PretendedDevice::Launch(const void* stub, const LaunchShape& shape, void** arguments,
                                    cudaStream_t stream) {
  const Function* kernel = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    kernel = FindKernel(stub);
  }
  if (kernel == nullptr) return cudaErrorNoKernelImageForDevice;
  // CUDA copies arguments when a launch is enqueued.
  std::vector<std::vector<char>> values;
  for (size_t i = 0; i < kernel->params.size(); ++i) {
    const char* const begin = static_cast<const char*>(arguments[i]);
    values.emplace_back(begin, begin + kernel->params[i].size_bytes);
  }
  return Enqueue(stream, [this, kernel, shape, values] { return Run(*kernel, shape, values); });
}

absl::Status PretendedDevice::Run(const Function& kernel, const LaunchShape& shape,
                                  const std::vector<std::vector<char>>& arguments) {
  std::vector<const void*> pointers;
  for (const std::vector<char>& value : arguments) pointers.push_back(value.data());
  return RunLaunch(kernel, shape, pointers.data(), options_, &counts_);
}

void PretendedDevice::SetProfiler(Profiler* profiler) {
  worker_.WhenIdle([&] { options_.profiler = profiler; });
}

void* PretendedDevice::Allocate(size_t size_bytes, MemoryKind kind) {
  auto block = std::make_unique<DeviceBlock>(size_bytes);
  void* const memory = block->begin();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (memory != nullptr) blocks_[memory] = {std::move(block), kind};
  return memory;
}

cudaError_t PretendedDevice::Free(void* memory, MemoryKind kind) {
  if (memory == nullptr) return state();
  std::unique_ptr<DeviceBlock> block;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end() || found->second.kind != kind) return cudaErrorInvalidValue;
    block = std::move(found->second.memory);
    blocks_.erase(found);
  }
  worker_.WhenIdle([&] { block = nullptr; });
  return state();
}

cudaStream_t PretendedDevice::OpenStream() {
  auto stream = std::make_unique<Stream>();
  const auto handle = reinterpret_cast<cudaStream_t>(stream.get());
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_[handle] = std::move(stream);
  return handle;
}

cudaError_t PretendedDevice::CloseStream(cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_ours = stream != cudaStreamLegacy && streams_.erase(stream) == 1;
  return is_ours ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t PretendedDevice::CheckStream(cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return FindStream(stream) == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
}

cudaError_t PretendedDevice::Enqueue(cudaStream_t stream, Work work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Stream* const found = FindStream(stream);
    if (found != nullptr && found->is_capturing) {
      found->captured.push_back(std::move(work));
      return state();
    }
  }
  return Push(stream, {.run = std::move(work)}, nullptr);
}

cudaError_t PretendedDevice::FindQueue(cudaStream_t stream, std::shared_ptr<StreamQueue>* queue) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream* const found = FindStream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  if (found->is_capturing) return cudaErrorStreamCaptureUnsupported;
  *queue = found->queue;
  return state();
}

cudaError_t PretendedDevice::Push(cudaStream_t stream, StreamWorker::Piece piece, Mark* mark) {
  std::shared_ptr<StreamQueue> queue;
  const cudaError_t error = FindQueue(stream, &queue);
  if (error != cudaSuccess) return error;
  const Mark pushed = worker_.Push(queue, std::move(piece));
  if (mark != nullptr) *mark = pushed;
  return cudaSuccess;
}

cudaError_t PretendedDevice::Copy(void* to, const void* from, size_t size_bytes,
                                  cudaStream_t stream) {
  const auto is_pageable = [&](const void* memory) {
    return FindDeviceMemory(reinterpret_cast<uint64_t>(memory), size_bytes) == nullptr;
  };
  std::vector<char> taken;
  if (is_pageable(from)) {
    taken.assign(static_cast<const char*>(from), static_cast<const char*>(from) + size_bytes);
  }
  Work work = [=, taken = std::move(taken)] {
    std::memcpy(to, taken.empty() ? from : taken.data(), size_bytes);
    return absl::OkStatus();
  };
  if (!is_pageable(from) && !is_pageable(to)) return Enqueue(stream, std::move(work));
  // No graph takes this copy: the memory need not be there at a later launch.
  const cudaError_t error = Push(stream, {.run = std::move(work)}, nullptr);
  return error == cudaSuccess && is_pageable(to) ? Synchronize(stream) : error;
}

cudaError_t PretendedDevice::Record(cudaStream_t stream, Mark* mark) {
  return Push(stream, {}, mark);
}

cudaError_t PretendedDevice::EnqueueWait(cudaStream_t stream, const Mark& mark) {
  return Push(stream, {.after = mark}, nullptr);
}

cudaError_t PretendedDevice::LaunchGraph(PretendedGraph* graph, cudaStream_t stream) {
  cudaError_t error = EnqueueWait(stream, graph->last);
  for (const Work& node : graph->nodes) {
    if (error == cudaSuccess) error = Push(stream, {.run = node}, &graph->last);
  }
  return error;
}

cudaError_t PretendedDevice::Query(cudaStream_t stream) {
  std::shared_ptr<StreamQueue> queue;
  const cudaError_t error = FindQueue(stream, &queue);
  if (error != cudaSuccess) return error;
  // The work may have failed while IsIdle waited for it.
  return worker_.IsIdle(*queue) ? state() : cudaErrorNotReady;
}

cudaError_t PretendedDevice::Synchronize(cudaStream_t stream) {
  std::shared_ptr<StreamQueue> queue;
  const cudaError_t error = FindQueue(stream, &queue);
  if (error != cudaSuccess) return error;
  worker_.AwaitIdle(*queue);
  return state();
}

cudaError_t PretendedDevice::IsCapturing(cudaStream_t stream, bool* is_capturing) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Stream* const found = FindStream(stream);
  *is_capturing = found != nullptr && found->is_capturing;
  return found == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
}

cudaError_t PretendedDevice::BeginCapture(cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream* const found = FindStream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  if (found->is_capturing) return cudaErrorIllegalState;
  found->is_capturing = true;
  return cudaSuccess;
}

cudaError_t PretendedDevice::EndCapture(cudaStream_t stream, std::vector<Work>* nodes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stream* const found = FindStream(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  if (!found->is_capturing) return cudaErrorIllegalState;
  found->is_capturing = false;
  *nodes = std::exchange(found->captured, {});
  return cudaSuccess;
}

cudaError_t PretendedDevice::state() {
  return worker_.status().ok() ? cudaSuccess : cudaErrorLaunchFailure;
}

}  // namespace specd::ptx
