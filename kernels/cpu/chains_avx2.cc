// RunChains for x86 processors with AVX2 and FMA. Compiled with flags of its own: whatever it
// includes must be a template over CpuTarget or always inlined.
#include "kernels/cpu/chains.h"

namespace specd {

void RunChainsAvx2(const RoundBatch& batch, void* workspace) {
  RunChains<CpuTarget::kAvx2>(batch, workspace);
}

}  // namespace specd
