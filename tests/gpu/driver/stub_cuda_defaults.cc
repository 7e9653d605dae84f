// Every function of libcuda.so.1 that specd calls, as one that succeeds and says nothing.
// stub_cuda.cc defines those again that have something to say.
#include "kernels/cuda/driver_api.h"

namespace specd {

int NoteCudaCall(const char* name);

namespace cuda {

#define SPECD_CUDA_FUNCTION(name, parameters) \
  extern "C" __attribute__((weak)) int name parameters { return NoteCudaCall(#name); }
SPECD_CUDA_FUNCTIONS(SPECD_CUDA_FUNCTION)
#undef SPECD_CUDA_FUNCTION

}  // namespace cuda

}  // namespace specd
