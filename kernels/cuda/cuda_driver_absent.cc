// Stands in for cuda_driver.cc where nvcc is not there to compile the kernels.
#include "kernels/cuda/cuda_driver.h"

namespace specd {

std::unique_ptr<GpuDriver> MakeCudaDriver() { return nullptr; }

}  // namespace specd
