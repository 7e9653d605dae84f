// The functions here load and launch the kernels for files that nvcc does not compile.
//
// Only .cu files launch kernels. Each one in this folder has one large kernel, so that they compile
// at the same time.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/core/fused_round.h"
#include "kernels/core/round_launch.h"
#include "kernels/core/staged_turn.h"

namespace specd {

// The facts about a device that a launch needs.
struct DeviceShape {
  int num_processors = 1;
  int blocks_per_task = 1;    // blocks of the launch for deferred tasks; they wait for each other
  int blocks_per_record = 1;  // the same of the launch that records
  bool launches_dependents = false;  // a launch may begin before the one that it depends on ends
  int tile_pass_blocks = 1;          // the blocks of the tile pass that a processor holds at once
};

// The threads of a team that shares the tiles of a row. With more warps, the wait for the ordered
// combine would take longer than the reads.
inline constexpr int kThreadsPerBlock = 256;

// The blocks of one multiprocessor, if there is work for all of them.
inline constexpr int kBlocksPerProcessor = 2;

// The same in the tile pass. A thread holds 64 elements of a tile in registers. With 12 such warps
// on a processor a thread has 168 registers; with 16 warps it would have 128, and spill. For
// devices before 9.0 ptxas spills with 168 too.
inline constexpr int kTilePassThreads = 128;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kTilePassBlocks = 2;
#else
inline constexpr int kTilePassBlocks = 3;
#endif

// Each of these brings a kernel to the device. Otherwise the first launch would do so and wait for
// the device, which a capture does not allow. Three of them also set the fields of the shape that
// follow from the kernel.
cudaError_t LoadDeferredKernel(DeviceShape* device);
cudaError_t LoadFetchKernel();
cudaError_t LoadRecordKernel(DeviceShape* device);
cudaError_t LoadResidualKernel();
cudaError_t LoadResolveKernel();
cudaError_t LoadRoundKernel(DeviceShape* device);
cudaError_t LoadStagedKernels();
cudaError_t LoadTransformKernel();

// The width of a fetch: enough blocks to request usual_bytes at once, if more blocks help.
unsigned NumFetchBlocks(size_t usual_bytes);

// The launches of GpuDriver with these names, on the CUDA stream `stream`.
cudaError_t EnqueueFetch(const FetchPlan& plan, cudaStream_t stream);
cudaError_t EnqueueResolve(const FusedRound* round, const RoundBounds& bounds,
                           int32_t num_processors, cudaStream_t stream);
cudaError_t EnqueueRound(const FusedRound* round, const RoundBounds& bounds,
                         const DeviceShape& device, cudaStream_t stream);
cudaError_t EnqueueResiduals(const FusedRound* round, const RoundBounds& bounds,
                             const DeviceShape& device, cudaStream_t stream);
cudaError_t EnqueueDeferred(const FusedRound* round, const RoundBounds& bounds,
                            const DeviceShape& device, cudaStream_t stream);
cudaError_t EnqueueRecord(const FusedRound* round, TokenId* tokens, const RoundBounds& bounds,
                          const DeviceShape& device, cudaStream_t stream);
cudaError_t EnqueueTakeStaged(const StagedPlan& plan, cudaStream_t stream);
cudaError_t EnqueueEndStaged(const StagedPlan& plan, cudaStream_t stream);
cudaError_t EnqueueTransforms(const TransformBatch& batch, void* workspaces, cudaStream_t stream);

}  // namespace specd
