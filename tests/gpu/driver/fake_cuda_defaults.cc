// Every function of libcuda.so.1 that specd calls, as one that the pretended device cannot do.
// fake_cuda.cc defines those again that it can.
#include "kernels/cuda/driver_api.h"

namespace specd::cuda {

#define SPECD_CUDA_FUNCTION(name, parameters) \
  extern "C" __attribute__((weak)) int name parameters { return kGpuNotSupported; }
SPECD_CUDA_FUNCTIONS(SPECD_CUDA_FUNCTION)
#undef SPECD_CUDA_FUNCTION

}  // namespace specd::cuda
