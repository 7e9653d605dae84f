// GpuDriver: what specd asks of a GPU, as an interface, so that faults can be injected below it and
// the code above it runs where there is no GPU.
//
// What CudaBackend runs rounds with, and what specd-bench times them with; what processes need to
// share a device is kernels/core/gpu_context.h. A driver serves one device and is used by one
// thread at a time. Implementations: kernels/cuda/cuda_driver.h over the CUDA runtime;
// tests/support/fake_gpu_driver.h in host memory.
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
  // The owner's names for what a driver made; null is none.
  struct Graph;
  struct Event;

  virtual ~GpuDriver() = default;

  // An error where no driver is installed; an empty list where there is one but no device.
  virtual GpuResult ListDevices(std::vector<GpuDevice>* devices) = 0;

  // Chooses the device of the calls that follow, whichever thread makes them.
  virtual GpuResult UseDevice(size_t index) = 0;
  virtual size_t device_in_use() const = 0;

  // The place in the list of the device of a caller's stream, which may be capturing. A default
  // stream is that of the device that is current in the calling thread.
  virtual GpuResult FindDevice(void* stream, size_t* device) = 0;

  // From now on calls are enqueued on a stream of the caller's (a cudaStream_t, which must outlive
  // the driver), in order with what the caller enqueues there, and no longer on the driver's own.
  // `device` becomes the place of the stream's device in the list. Before UseDevice.
  virtual GpuResult UseStream(void* stream, size_t* device) = 0;
  // Is that stream capturing? Never where there is none. Spoils no capture.
  virtual GpuResult IsCapturing(bool* is_capturing) = 0;

  // The same for the calls until EnqueueOn(nullptr), on a stream of the device in use. It may be
  // capturing: then launches become part of what is captured, and no other call is allowed on it.
  virtual void EnqueueOn(void* stream) = 0;

  // Device memory, aligned to 256 bytes. Free(nullptr) does nothing. REQUIRES of giving back, here
  // and below: nothing that runs, or is still to run, reads or writes the memory. Streams of the
  // caller's may be capturing while memory is taken and given back.
  virtual GpuResult Allocate(size_t size_bytes, void** memory) = 0;
  // All of it is 0, for every stream. Waits, but never for a stream of the caller's.
  virtual GpuResult AllocateZeroed(size_t size_bytes, void** memory) = 0;
  virtual GpuResult Free(void* memory) = 0;

  // Host memory that stays where it is and that kernels reach at the address at which the host
  // does, aligned to 256 bytes. What a kernel has written there is valid after Synchronize, or once
  // the host has seen the word that a LaunchEndStaged behind the kernel writes.
  virtual GpuResult AllocatePinned(size_t size_bytes, void** memory) = 0;
  virtual GpuResult FreePinned(void* memory) = 0;

  // Enqueued in order with launches. The host memory must stay as it is until Synchronize, or until
  // the host has seen the word that a LaunchEndStaged behind the copy writes; what ToHost fills is
  // valid after Synchronize.
  virtual GpuResult ToDevice(void* device, const void* host, size_t size_bytes) = 0;
  virtual GpuResult ToHost(void* host, const void* device, size_t size_bytes) = 0;

  // Enqueues a copy of as many bytes as the FetchHeader at plan.source says when the copy runs.
  virtual GpuResult LaunchFetch(const FetchPlan& plan) = 0;

  // Enqueues what makes the tasks of the round that `round`, device memory, holds when it runs, out
  // of those that leave something to the device (FusedRound::resolve). Before LaunchRound, where
  // any may; where none does, nothing happens.
  virtual GpuResult LaunchResolve(const FusedRound* round, const RoundBounds& bounds) = 0;

  // Enqueues every task of the round that `round`, device memory, holds when it runs. All pointers
  // in it, those inside tasks included, are memory that kernels reach. REQUIRES: the round is
  // within the bounds.
  virtual GpuResult LaunchRound(const FusedRound* round, const RoundBounds& bounds) = 0;

  // What surrounds LaunchRound where rounds are staged after they were enqueued: TakeStaged and the
  // fetch of what it took, and EndStaged (kernels/warps/staged_turn.h), which writes a word of
  // plan.done behind everything that was enqueued before it, if the turn has a round. The end also
  // serves rounds that were enqueued when they were known: of the plan it looks at num_areas, done
  // and turn alone.
  virtual GpuResult LaunchTakeStaged(const StagedPlan& plan) = 0;
  virtual GpuResult LaunchEndStaged(const StagedPlan& plan) = 0;

  // Enqueues a transform of rows, a block for each. `workspaces` are, one after another, what
  // TaskWorkspaceBytes gives for the vocabulary and no drafts.
  virtual GpuResult LaunchTransforms(const TransformBatch& batch, void* workspaces) = 0;

  // Enqueues a read of the rows.
  virtual GpuResult LaunchRead(const ReadPlan& plan) = 0;

  // Enqueues the sums of their weights.
  virtual GpuResult LaunchWeights(const WeighPlan& plan) = 0;

  // Until EndCapture, launches and RecordEvent are not enqueued but kept; no other call is allowed,
  // and one that is made spoils the capture. EndCapture has to follow whatever happened, and makes
  // a graph that is ready to be launched; it may enqueue what makes it so.
  virtual GpuResult BeginCapture() = 0;
  virtual GpuResult EndCapture(Graph** graph) = 0;

  // Enqueues what was captured, with its arguments as they were then and memory as it will be.
  virtual GpuResult LaunchGraph(Graph* graph) = 0;
  // A launch of it that is running is not cut short. So whoever has seen the word of a
  // LaunchEndStaged at its end need wait no longer, though that kernel may still be ending.
  // DestroyGraph(nullptr) does nothing.
  virtual GpuResult DestroyGraph(Graph* graph) = 0;

  // Points in time on the device. An event that is captured is recorded by every launch of the
  // graph. ElapsedUs: after Synchronize.
  virtual GpuResult CreateEvent(Event** event) = 0;
  virtual GpuResult DestroyEvent(Event* event) = 0;
  virtual GpuResult RecordEvent(Event* event) = 0;
  virtual GpuResult ElapsedUs(Event* start, Event* end, double* elapsed_us) = 0;

  // Waits for everything enqueued, and reports the first error that any of it had. Rounds are
  // waited for without it, by a word and Check (kernels/cuda/done_word.h).
  virtual GpuResult Synchronize() = 0;
  // Whether the device has failed, on whatever stream; a failure is seen sooner or later. Waits for
  // nothing and may be asked while streams of the caller's are capturing.
  virtual GpuResult Check() = 0;
};

}  // namespace specd
