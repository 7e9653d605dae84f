// GpuDriver runs rounds on one GPU for CudaBackend and specd-bench.
//
// The interface lets tests inject faults, and lets the code above it run without a GPU.
// kernels/core/gpu_context.h has the interface for sharing a device between processes. A driver
// serves one device and is used by one thread at a time. Implementations:
// kernels/cuda/cuda_driver.h over CUDA; tests/gpu/driver/fake_gpu_driver.h in host memory.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/core/fused_round.h"
#include "kernels/core/gpu_result.h"
#include "kernels/core/round_launch.h"
#include "kernels/core/staged_turn.h"

namespace specd {

class GpuDriver {
 public:
  // An opaque handle of an object that the driver made; null is none.
  struct Graph;

  virtual ~GpuDriver() = default;

  // An error if no driver is installed; an empty list if the driver has no device.
  virtual GpuResult ListDevices(std::vector<GpuDevice>* devices) = 0;

  // Chooses the device of the calls that follow, from any thread.
  virtual GpuResult UseDevice(size_t index) = 0;
  virtual size_t device_in_use() const = 0;

  // The index in the list of the device of a caller's CUDA stream, which may be capturing. A
  // default CUDA stream belongs to the device that is current in the calling thread.
  virtual GpuResult FindDevice(void* stream, size_t* device) = 0;

  // Enqueues later calls on the caller's CUDA stream, in order with the caller's own work, and no
  // longer on the driver's. `stream` is a cudaStream_t that outlives the driver. `device` becomes
  // the index of that CUDA stream's device in the list. Call before UseDevice.
  virtual GpuResult UseStream(void* stream, size_t* device) = 0;
  // Whether the caller's CUDA stream is capturing; false if there is none. The call spoils no
  // capture.
  virtual GpuResult IsCapturing(bool* is_capturing) = 0;

  // Does the same for the calls until EnqueueOn(nullptr), on a CUDA stream of the device in use. If
  // the CUDA stream is capturing, launches become part of the capture, and no other call is allowed
  // on it.
  virtual void EnqueueOn(void* stream) = 0;

  // Remembers how far a CUDA stream has come, in place of an earlier mark. A default CUDA stream is
  // that of the device in use. If the CUDA stream is capturing, *is_capturing is set and nothing
  // happens.
  virtual GpuResult Mark(void* stream, bool* is_capturing) = 0;
  // Enqueues later calls on the driver's own CUDA stream until EnqueueOn(nullptr). They come after
  // the work before the last Mark, if there was one, and wait for no other work of the caller's.
  virtual GpuResult EnqueueAfterMark() = 0;

  // The CUDA stream of the next launch, for a caller that launches kernels of its own in order with
  // the driver's. During a capture it is the CUDA stream that captures. REQUIRES: UseDevice.
  virtual void* launch_stream() const = 0;

  // Device memory, aligned to 256 bytes. Free(nullptr) does nothing. REQUIRES for every call that
  // returns memory: no running or enqueued work reads or writes that memory. CUDA streams of the
  // caller may be capturing while memory is taken and returned.
  virtual GpuResult Allocate(size_t size_bytes, void** memory) = 0;
  // All of the memory is 0 for every CUDA stream. The call waits, but never for a CUDA stream of
  // the caller's.
  virtual GpuResult AllocateZeroed(size_t size_bytes, void** memory) = 0;
  virtual GpuResult Free(void* memory) = 0;

  // Pinned host memory, aligned to 256 bytes. Kernels use the same address as the host. Data that a
  // kernel wrote there is valid after Synchronize. It is also valid once the host has seen the word
  // of a later LaunchEndStaged.
  virtual GpuResult AllocatePinned(size_t size_bytes, void** memory) = 0;
  virtual GpuResult FreePinned(void* memory) = 0;

  // Copies in order with launches. The host memory of ToDevice must not change until Synchronize,
  // or until the host has seen the word of a later LaunchEndStaged. The host memory of ToHost is
  // valid after Synchronize.
  virtual GpuResult ToDevice(void* device, const void* host, size_t size_bytes) = 0;
  virtual GpuResult ToHost(void* host, const void* device, size_t size_bytes) = 0;

  // Enqueues a copy. The FetchHeader at plan.source names the number of bytes when the copy runs.
  virtual GpuResult LaunchFetch(const FetchPlan& plan) = 0;

  // Enqueues the completion of the tasks that leave something to the device (FusedRound::resolve).
  // `round` is device memory and is read when the launch runs. Call before LaunchRound if any task
  // may be incomplete; for other rounds the launch does nothing.
  virtual GpuResult LaunchResolve(const FusedRound* round, const RoundBounds& bounds) = 0;

  // Enqueues every task of the round at `round`, which is device memory and is read when the launch
  // runs. Kernels reach all pointers in the round, those inside tasks included. REQUIRES: the round
  // is within the bounds.
  virtual GpuResult LaunchRound(const FusedRound* round, const RoundBounds& bounds) = 0;

  // Enqueues the records of a round (kernels/warps/record.h), after LaunchRound. Writes to
  // RoundBatch::decisions, and nothing if that is null. `tokens` is device memory of num_tasks *
  // tokens_stride ids that no code reads.
  virtual GpuResult LaunchRecord(const FusedRound* round, TokenId* tokens,
                                 const RoundBounds& bounds) = 0;

  // The begin and end of LaunchRound for rounds that are staged after they were enqueued
  // (kernels/warps/staged_turn.h). LaunchTakeStaged takes and fetches the next staged round. If the
  // turn has a round, LaunchEndStaged writes a word of plan.done after all work enqueued before.
  // LaunchEndStaged also serves rounds that were known when they were enqueued. It then reads only
  // num_areas, done and turn of the plan.
  virtual GpuResult LaunchTakeStaged(const StagedPlan& plan) = 0;
  virtual GpuResult LaunchEndStaged(const StagedPlan& plan) = 0;

  // Enqueues a transform of rows, a block for each row. `workspaces` holds TaskWorkspaceBytes for
  // the vocabulary and no drafts, once for each row.
  virtual GpuResult LaunchTransforms(const TransformBatch& batch, void* workspaces) = 0;

  // From BeginCapture to EndCapture, launches are kept instead of enqueued. No other call is
  // allowed, and such a call spoils the capture. EndCapture must follow in every case, and makes a
  // graph that is ready for launches. EndCapture may enqueue work that the graph needs.
  virtual GpuResult BeginCapture() = 0;
  virtual GpuResult EndCapture(Graph** graph) = 0;

  // Enqueues the captured work with the arguments of the capture and the memory of the launch.
  virtual GpuResult LaunchGraph(Graph* graph) = 0;
  // DestroyGraph never cuts a running launch short. A caller that has seen the word of a
  // LaunchEndStaged at the graph's end need not wait, even while that kernel still ends.
  // DestroyGraph(nullptr) does nothing.
  virtual GpuResult DestroyGraph(Graph* graph) = 0;

  // Waits for all enqueued work, and reports its first error. Rounds are awaited without this call,
  // by a word and Check (kernels/cuda/done_word.h).
  virtual GpuResult Synchronize() = 0;
  // Whether the device has failed on any CUDA stream; a failure is seen sooner or later. The call
  // waits for nothing and is allowed while CUDA streams of the caller's are capturing.
  virtual GpuResult Check() = 0;
};

}  // namespace specd
