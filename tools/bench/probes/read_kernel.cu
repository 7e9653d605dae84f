#include "kernels/cuda/launch.cuh"
#include "tools/bench/probes/probe_kernels.h"

namespace specd::bench {

namespace {

// Each thread has this many 16-byte loads in flight. Four blocks on each multiprocessor then have
// 128 KiB in flight, several times the amount that hides the latency of memory.
constexpr int kLoads = 8;
constexpr int kReadBlocksPerProcessor = 4;
constexpr int64_t kUnitsPerItem = int64_t{kThreadsPerBlock} * kLoads;

struct Units {
  const uint4* data;
  int64_t count;
};

// The whole 16-byte units of a row.
__device__ Units UnitsOf(const ReadPlan& plan, int64_t row) {
  const auto begin = reinterpret_cast<uintptr_t>(plan.rows[row]);
  const uintptr_t first = (begin + kReadUnit - 1) / kReadUnit * kReadUnit;
  const uintptr_t last = (begin + static_cast<uintptr_t>(plan.row_bytes)) / kReadUnit * kReadUnit;
  return {reinterpret_cast<const uint4*>(first),
          last > first ? static_cast<int64_t>((last - first) / kReadUnit) : 0};
}

// Blocks take pieces of rows in turn. The sum is stored only if it has one particular, very
// unlikely value. The compiler cannot know that, so it must keep every load, and usually no word is
// written.
__global__ void __launch_bounds__(kThreadsPerBlock) ReadRowsKernel(ReadPlan plan) {
  const int64_t items_per_row =
      (plan.row_bytes / static_cast<int64_t>(kReadUnit) + kUnitsPerItem - 1) / kUnitsPerItem;
  const int64_t num_items = plan.num_rows * items_per_row;
  uint32_t sum = 0;
  for (int64_t item = blockIdx.x; item < num_items; item += gridDim.x) {
    const Units units = UnitsOf(plan, item / items_per_row);
    const int64_t first = item % items_per_row * kUnitsPerItem + threadIdx.x;
    uint4 loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t unit = first + int64_t{i} * kThreadsPerBlock;
      loaded[i] = unit < units.count ? __ldcs(units.data + unit) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      sum += loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
    }
  }
  if (sum == 0x5EEDBEEF) *plan.sink = sum;
}

}  // namespace

cudaError_t LoadReadKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, ReadRowsKernel);
}

cudaError_t EnqueueRead(const ReadPlan& plan, const DeviceShape& device, cudaStream_t stream) {
  const int64_t items_per_row =
      (plan.row_bytes / static_cast<int64_t>(kReadUnit) + kUnitsPerItem - 1) / kUnitsPerItem;
  const int64_t num_items = plan.num_rows * items_per_row;
  const int64_t most = int64_t{device.num_processors} * kReadBlocksPerProcessor;
  const auto num_blocks = static_cast<unsigned>(num_items < 1      ? 1
                                                : num_items < most ? num_items
                                                                   : most);
  return Launch(num_blocks, kThreadsPerBlock, stream, ReadRowsKernel, plan);
}

}  // namespace specd::bench
