// Compiled, and never launched: the tile pass over plain rows as it stands in RunRoundKernel,
// without the functions that it calls there, which keep their state in local memory as functions
// do. ptxas counts that for the kernel they are called from, so only here can it be asked for what
// matters: a spill, or any other use of local memory, is an error in this file
// (kernels/CMakeLists.txt).
#include "kernels/bodies/tile_pass.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/round_of_block.cuh"

namespace specd {

__global__ void __launch_bounds__(kTilePassThreads, kTilePassBlocks)
    TilePassWithoutSpills(const FusedRound* round) {
  const FusedRound& of_block = RoundOfBlock(round);
  TilePass<CudaThread>(CudaThread(), of_block).template Run<false>([&](const AheadRow& row) {
    CudaThread().Note(1, &of_block.progress[row.task].deferred);
  });
}

}  // namespace specd
