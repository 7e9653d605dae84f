// This file replaces cuda_probes.cc if there is no nvcc to compile the kernels.
#include "tools/bench/probes/gpu_probes.h"

namespace specd::bench {

std::unique_ptr<GpuProbes> MakeCudaProbes(GpuDriver*) { return nullptr; }

}  // namespace specd::bench
