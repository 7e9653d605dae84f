// Every function of libcuda.so.1 that specd looks for, as one that refuses. driver_functions.cc
// defines those again that do something.
#include "kernels/cuda/driver_api.h"

namespace specd::cuda {

constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

#define SPECD_CUDA_FUNCTION(name, parameters) \
  extern "C" __attribute__((weak)) int name parameters { return kNotSupported; }
SPECD_CUDA_FUNCTIONS(SPECD_CUDA_FUNCTION)
#undef SPECD_CUDA_FUNCTION

}  // namespace specd::cuda
