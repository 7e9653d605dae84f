// Compiled, and never launched: the tile pass as it stands in RunRoundKernel, without what the last
// warp with a row does, whose calls keep registers in local memory as calls do. ptxas counts those
// for the kernel they are called from, so only here can it be asked for what matters: a spill in
// this file is an error (kernels/CMakeLists.txt).
#include "kernels/bodies/tile_pass.h"
#include "kernels/cuda/cuda_thread.cuh"
#include "kernels/cuda/round_kernels.h"
#include "kernels/cuda/round_of_block.cuh"

namespace specd {

__global__ void __launch_bounds__(kTilePassThreads, kTilePassBlocks)
    TilePassWithoutSpills(const FusedRound* round) {
  const FusedRound& of_block = RoundOfBlock(round);
  TilePass<CudaThread>(CudaThread(), of_block).Run([&](const AheadRow& row) {
    CudaThread().Note(1, &of_block.progress[row.task].deferred);
  });
}

}  // namespace specd
