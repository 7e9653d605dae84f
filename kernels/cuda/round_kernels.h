// The host entries of the kernels, callable from files that nvcc does not compile. The only
// launches are in the .cu files beside this one, one large kernel in each, so that they compile at
// the same time.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/core/fused_round.h"
#include "kernels/core/round_launch.h"
#include "kernels/core/staged_turn.h"

namespace specd {

// What a launch has to know of a device.
struct DeviceShape {
  int num_processors = 1;
  int blocks_per_task = 1;           // of the launch for deferred tasks: they wait for one another
  bool launches_dependents = false;  // a launch may begin before the one that it depends on ends
  int tile_pass_blocks = 1;          // of the tile pass, that a processor holds at once
};

// Of a team that shares the tiles of a row; more warps would wait for the ordered combine more than
// they read.
inline constexpr int kThreadsPerBlock = 256;

// Blocks that one multiprocessor is given, where there is work for so many.
inline constexpr int kBlocksPerProcessor = 2;

// The same in the tile pass. A thread has 64 elements of a tile in registers, and 168 registers
// where a processor holds 12 such warps; with 16 of them it would have 128, and spill. For devices
// before 9.0 ptxas spills with 168 too.
inline constexpr int kTilePassThreads = 128;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kTilePassBlocks = 2;
#else
inline constexpr int kTilePassBlocks = 3;
#endif

// Bring a kernel to the device. Otherwise its first launch would, and wait for the device
// meanwhile, which is not allowed in a capture.
// Two also say what of the shape follows from the kernel.
cudaError_t LoadDeferredKernel(DeviceShape* device);
cudaError_t LoadFetchKernel();
cudaError_t LoadReadKernel();
cudaError_t LoadResidualKernel();
cudaError_t LoadResolveKernel();
cudaError_t LoadRoundKernel(DeviceShape* device);
cudaError_t LoadStagedKernels();
cudaError_t LoadTransformKernel();
cudaError_t LoadWeightsKernels();

// How wide a fetch is: enough to ask for so many bytes at once, where that is of use.
unsigned NumFetchBlocks(size_t usual_bytes);

// As GpuDriver's launches of these names say, on `stream`.
cudaError_t EnqueueFetch(const FetchPlan& plan, cudaStream_t stream);
cudaError_t EnqueueRead(const ReadPlan& plan, int32_t num_processors, cudaStream_t stream);
cudaError_t EnqueueResolve(const FusedRound* round, const RoundBounds& bounds,
                           int32_t num_processors, cudaStream_t stream);
cudaError_t EnqueueRound(const FusedRound* round, const RoundBounds& bounds,
                         const DeviceShape& device, cudaStream_t stream);
cudaError_t EnqueueResiduals(const FusedRound* round, const RoundBounds& bounds,
                             const DeviceShape& device, cudaStream_t stream);
cudaError_t EnqueueDeferred(const FusedRound* round, const RoundBounds& bounds,
                            const DeviceShape& device, cudaStream_t stream);
cudaError_t EnqueueTakeStaged(const StagedPlan& plan, cudaStream_t stream);
cudaError_t EnqueueEndStaged(const StagedPlan& plan, cudaStream_t stream);
cudaError_t EnqueueWeights(const WeighPlan& plan, const DeviceShape& device, cudaStream_t stream);
cudaError_t EnqueueTransforms(const TransformBatch& batch, void* workspaces, cudaStream_t stream);

}  // namespace specd
