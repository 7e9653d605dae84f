// ResultOf turns the answer of a call of the CUDA runtime into a GpuResult that names the call, for
// files that nvcc does not compile. Safe from any thread.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/core/gpu_result.h"

namespace specd {

inline GpuResult ResultOf(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return GpuResult::Ok();
  return GpuResult::Error(
      fmt::format("{}: {} ({})", call, cudaGetErrorName(error), cudaGetErrorString(error)), error);
}

}  // namespace specd
