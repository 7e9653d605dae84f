// RunChains for every processor of the build's architecture. Without a fused multiply-add
// instruction each one is a call of libm's fmaf: right to the bit, and slow.
#include "kernels/cpu/chains.h"

namespace specd {

void RunChainsBaseline(const RoundBatch& batch, void* workspace) {
  RunChains<CpuTarget::kBaseline>(batch, workspace);
}

}  // namespace specd
