// This file replaces cuda_driver.cc if there is no nvcc to compile the kernels.
#include "kernels/cuda/cuda_driver.h"

namespace specd {

std::unique_ptr<GpuDriver> MakeCudaDriver() { return nullptr; }

}  // namespace specd
