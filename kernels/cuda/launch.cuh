// Launch starts a kernel for a .cu file and returns its own error.
//
// `<<<>>>` leaves its error for cudaGetLastError, where it may be mixed with another's: in an
// embedded session the thread is the engine's.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace specd {

template <typename... Args>
cudaError_t Launch(int64_t num_blocks, int num_threads, cudaStream_t stream,
                   void (*kernel)(Args...), std::type_identity_t<Args>... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(static_cast<unsigned>(num_threads));
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

// A kernel that begins with cudaGridDependencySynchronize may be brought to the device while the
// launch before it ends.
inline cudaLaunchAttribute EarlyLaunch() {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  return early;
}

}  // namespace specd
