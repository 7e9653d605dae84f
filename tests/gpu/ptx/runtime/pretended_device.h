// PretendedDevice is the device that the stand-in for the CUDA runtime gives: its memory, its
// kernels and its CUDA streams, over the PTX machine.
//
// All work runs when it is enqueued, on the caller's thread. A launch that fails breaks the device:
// every later call fails, as after a fault of a real kernel. The environment sets it up, because
// the programs under test do not know of it:
//
//   SPECD_PTX_FOLDER      where the .ptx files are
//   SPECD_PTX_ARCH        80 or 90, the compute capability times 10
//   SPECD_PTX_SEED        LaunchOptions::seed; likewise _CLUSTERS, _QUANTUM, _ROUGH, _POISON
//   SPECD_PTX_PROCESSORS  of the device; 2
//   SPECD_PTX_COVERAGE    a file for the lines of each kernel that never ran
//
// Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/gpu/ptx/machine/device_memory.h"
#include "tests/gpu/ptx/machine/launch.h"
#include "tests/gpu/ptx/runtime/ptx_files.h"

namespace specd::ptx {

// Something that was enqueued.
using Work = std::function<cudaError_t()>;

class PretendedDevice {
 public:
  static PretendedDevice& Get();

  int arch() const { return arch_; }
  int num_processors() const { return num_processors_; }

  // Kernels, by the address of their stub on the host.
  void RegisterKernel(const void* stub, const std::string& name);
  // cudaErrorNoKernelImageForDevice if its PTX is not there.
  cudaError_t CheckKernel(const void* stub);
  cudaError_t Launch(const void* stub, const LaunchShape& shape, void** arguments,
                     cudaStream_t stream);

  // Counts all launches from now on, or none if null. It outlives them.
  void SetProfiler(Profiler* profiler);

  void* Allocate(size_t size_bytes);
  bool Free(void* memory);

  // Runs the work, or keeps it if the CUDA stream captures.
  cudaError_t Enqueue(cudaStream_t stream, Work work);
  // What came of the work so far.
  cudaError_t state();
  std::string failure();

 private:
  PretendedDevice();

  const Function* Find(const void* stub);
  bool OpenFiles();
  // The device is broken from here on.
  void Fail(const absl::Status& status);
  cudaError_t Run(const Function& kernel, const LaunchShape& shape,
                  const std::vector<std::vector<char>>& arguments);
  void ReportAtExit();

  std::recursive_mutex mutex_;
  int arch_;
  int num_processors_;
  LaunchOptions options_;
  LaunchCounts counts_;
  std::map<const void*, std::string> names_;
  std::map<const void*, const Function*> kernels_;
  std::unique_ptr<PtxFiles> files_;
  std::map<void*, std::unique_ptr<DeviceBlock>> blocks_;
  std::string failure_;
};

// A CUDA stream of the device, and the work that it has captured.
struct PretendedStream {
  bool is_capturing = false;
  std::vector<Work> captured;
};
// A graph, instantiated or not.
struct PretendedGraph {
  std::vector<Work> nodes;
};

}  // namespace specd::ptx
