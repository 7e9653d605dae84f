#include "tests/gpu/ptx/runtime/pretended_device.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

#include "tests/gpu/ptx/runtime/coverage.h"

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
               .poisons_registers = NumberOf("SPECD_PTX_POISON", 0) != 0} {
  std::atexit([] { Get().ReportAtExit(); });
}

void PretendedDevice::RegisterKernel(const void* stub, const std::string& name) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  names_[stub] = name;
}

bool PretendedDevice::OpenFiles() {
  if (files_ != nullptr) return true;
  absl::StatusOr<std::unique_ptr<PtxFiles>> files = PtxFiles::Open(TextOf("SPECD_PTX_FOLDER"));
  if (!files.ok()) {
    Fail(files.status());
    return false;
  }
  files_ = std::move(*files);
  return true;
}

const Function* PretendedDevice::Find(const void* stub) {
  if (const auto known = kernels_.find(stub); known != kernels_.end()) return known->second;
  const auto name = names_.find(stub);
  if (name == names_.end() || !OpenFiles()) return nullptr;
  const absl::StatusOr<const Function*> kernel = files_->Find(name->second);
  if (!kernel.ok()) {
    Fail(kernel.status());
    return nullptr;
  }
  if (*kernel != nullptr) kernels_[stub] = *kernel;
  return *kernel;
}

void PretendedDevice::Fail(const absl::Status& status) {
  failure_ = std::string(status.message());
  fmt::print(stderr, "ptx: {}\n", failure_);
}

cudaError_t PretendedDevice::CheckKernel(const void* stub) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const auto name = names_.find(stub);
  const bool has = name != names_.end() && OpenFiles() && files_->Has(name->second);
  return has ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

cudaError_t PretendedDevice::Launch(const void* stub, const LaunchShape& shape, void** arguments,
                                    cudaStream_t stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const Function* const kernel = Find(stub);
  if (kernel == nullptr) return cudaErrorNoKernelImageForDevice;
  // CUDA copies arguments when a launch is enqueued.
  std::vector<std::vector<char>> values;
  for (size_t i = 0; i < kernel->params.size(); ++i) {
    const char* const begin = static_cast<const char*>(arguments[i]);
    values.emplace_back(begin, begin + kernel->params[i].size_bytes);
  }
  return Enqueue(stream, [this, kernel, shape, values] { return Run(*kernel, shape, values); });
}

cudaError_t PretendedDevice::Run(const Function& kernel, const LaunchShape& shape,
                                 const std::vector<std::vector<char>>& arguments) {
  std::vector<const void*> pointers;
  for (const std::vector<char>& value : arguments) pointers.push_back(value.data());
  const absl::Status status = RunLaunch(kernel, shape, pointers.data(), options_, &counts_);
  if (status.ok()) return cudaSuccess;
  Fail(status);
  return cudaErrorLaunchFailure;
}

void PretendedDevice::SetProfiler(Profiler* profiler) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  options_.profiler = profiler;
}

void* PretendedDevice::Allocate(size_t size_bytes) {
  auto block = std::make_unique<DeviceBlock>(size_bytes);
  void* const memory = block->begin();
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (memory != nullptr) blocks_[memory] = std::move(block);
  return memory;
}

bool PretendedDevice::Free(void* memory) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return memory == nullptr || blocks_.erase(memory) == 1;
}

cudaError_t PretendedDevice::Enqueue(cudaStream_t stream, Work work) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (!failure_.empty()) return cudaErrorLaunchFailure;
  auto* const pretended = reinterpret_cast<PretendedStream*>(stream);
  if (pretended == nullptr || !pretended->is_capturing) return work();
  pretended->captured.push_back(std::move(work));
  return cudaSuccess;
}

cudaError_t PretendedDevice::state() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return failure_.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

std::string PretendedDevice::failure() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return failure_;
}

void PretendedDevice::ReportAtExit() {
  const std::string path = TextOf("SPECD_PTX_COVERAGE");
  if (path.empty() || files_ == nullptr) return;
  // A file none of whose kernels was asked for has lines that never ran, too.
  const absl::StatusOr<std::vector<const Module*>> modules = files_->LoadAll();
  if (!modules.ok()) return;
  std::ofstream file(path);
  for (const Module* const module : *modules) {
    for (const KernelCoverage& kernel : CoverageOf(*module)) file << TextOf(kernel);
  }
  fmt::print(stderr, "ptx: {} launches, {} warp instructions, {} switches; coverage in {}\n",
             counts_.num_launches, counts_.num_warp_instructions, counts_.num_switches, path);
}

}  // namespace specd::ptx
