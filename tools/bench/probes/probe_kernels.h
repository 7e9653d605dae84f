// The functions here load and launch the kernels of CudaProbes, for files that nvcc does not
// compile.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/round_kernels.h"
#include "tools/bench/probes/gpu_probes.h"

namespace specd::bench {

// As kernels/cuda/round_kernels.h loads the kernels of rounds.
cudaError_t LoadReadKernel();

// The launch of GpuProbes, on the CUDA stream `stream`.
cudaError_t EnqueueRead(const ReadPlan& plan, const DeviceShape& device, cudaStream_t stream);

}  // namespace specd::bench
