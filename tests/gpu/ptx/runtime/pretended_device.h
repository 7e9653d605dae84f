// PretendedDevice is the device that the stand-in for the CUDA runtime gives: its memory, its
// kernels and its CUDA streams, over the PTX machine.
//
// CUDA streams are asynchronous: a thread does their work (stream_worker.h), one launch or copy at
// a time. As in CUDA, memory of the host that is not page-locked takes part in no copy behind the
// caller's back: what is copied from there is taken at once, and a copy to there is waited for.
// A launch that fails breaks the device: every later use of a CUDA stream fails, as after a fault
// of a real kernel. The environment sets the device up, because the programs under test do not know
// of it:
//
//   SPECD_PTX_FOLDER      where the .ptx files are
//   SPECD_PTX_ARCH        80 or 90, the compute capability times 10
//   SPECD_PTX_SEED        LaunchOptions::seed, and that of the CUDA streams' order
//   SPECD_PTX_CLUSTERS    LaunchOptions::resident_clusters; likewise _QUANTUM, _ROUGH, _POISON
//   SPECD_PTX_PROCESSORS  of the device; 2
//
// Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu/ptx/machine/device_memory.h"
#include "tests/gpu/ptx/machine/launch.h"
#include "tests/gpu/ptx/runtime/ptx_files.h"
#include "tests/gpu/ptx/runtime/stream_worker.h"

namespace specd::ptx {

enum class MemoryKind { kDevice, kPinned };

// A graph, instantiated or not. A graph's launches come one after another.
struct PretendedGraph {
  std::vector<Work> nodes;
  Mark last = {};
};

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

  // Counts all launches from now on, or none if null, after those that are enqueued. It outlives
  // them.
  void SetProfiler(Profiler* profiler);

  void* Allocate(size_t size_bytes, MemoryKind kind);
  // Waits for all work.
  cudaError_t Free(void* memory, MemoryKind kind);

  // One that does not wait for the default CUDA stream.
  cudaStream_t OpenStream();
  // The work that is left still runs.
  cudaError_t CloseStream(cudaStream_t stream);
  cudaError_t CheckStream(cudaStream_t stream);

  // Enqueues the work, or keeps it if the CUDA stream captures.
  cudaError_t Enqueue(cudaStream_t stream, Work work);
  cudaError_t Copy(void* to, const void* from, size_t size_bytes, cudaStream_t stream);
  cudaError_t Record(cudaStream_t stream, Mark* mark);
  cudaError_t EnqueueWait(cudaStream_t stream, const Mark& mark);
  cudaError_t LaunchGraph(PretendedGraph* graph, cudaStream_t stream);
  // cudaErrorNotReady while there is work.
  cudaError_t Query(cudaStream_t stream);
  cudaError_t Synchronize(cudaStream_t stream);
  std::optional<Mark::Clock::time_point> DoneSince(const Mark& mark) {
    return worker_.DoneSince(mark);
  }

  cudaError_t IsCapturing(cudaStream_t stream, bool* is_capturing);
  cudaError_t BeginCapture(cudaStream_t stream);
  cudaError_t EndCapture(cudaStream_t stream, std::vector<Work>* nodes);

  // cudaErrorLaunchFailure after an error of the work.
  cudaError_t state();
  std::string failure() { return std::string(worker_.status().message()); }

 private:
  struct Block {
    std::unique_ptr<DeviceBlock> memory;
    MemoryKind kind;
  };
  struct Stream {
    std::shared_ptr<StreamQueue> queue = std::make_shared<StreamQueue>();
    bool is_capturing = false;
    std::vector<Work> captured = {};
  };

  PretendedDevice();

  // These three want the mutex.
  const Function* FindKernel(const void* stub);
  bool OpenFiles();
  Stream* FindStream(cudaStream_t stream);

  // An error of the device, or of a CUDA stream that captures.
  cudaError_t FindQueue(cudaStream_t stream, std::shared_ptr<StreamQueue>* queue);
  // Enqueues something that no graph takes.
  cudaError_t Push(cudaStream_t stream, StreamWorker::Piece piece, Mark* mark);
  absl::Status Run(const Function& kernel, const LaunchShape& shape,
                   const std::vector<std::vector<char>>& arguments);

  const int arch_;
  const int num_processors_;
  // The worker uses these two; others only while it is idle.
  LaunchOptions options_;
  LaunchCounts counts_;

  std::mutex mutex_;
  std::map<const void*, std::string> names_;
  std::map<const void*, const Function*> kernels_;
  std::unique_ptr<PtxFiles> files_;
  std::map<void*, Block> blocks_;
  std::map<cudaStream_t, std::unique_ptr<Stream>> streams_;
  StreamWorker worker_;
};

}  // namespace specd::ptx
