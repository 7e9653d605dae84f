// The command `specd-bench gpu`, apart from MeasureGpu: it needs the driver and the probes.
#include <fmt/format.h>

#include "kernels/cuda/cuda_driver.h"
#include "tools/bench/gpu_suite.h"
#include "tools/bench/probes/cuda_probes.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

absl::Status RunGpu(const Flags& flags, Output* out) {
  const VerifyOptions options = OptionsOf(flags, GpuCases(), ReadMachine());
  SPECD_TAKE(const OpenGpu gpu, OpenFirstGpu(MakeCudaDriver(), MakeCudaProbes));
  out->Begin(gpu.device.name, fmt::format("{}; L2 {:.0f} MiB", gpu.device.name,
                                          static_cast<double>(gpu.device.l2_bytes) / 1048576));
  return MeasureGpu(options, gpu, HooksFor("cuda", out));
}

}  // namespace

Suite GpuCommand() {
  return {.name = "gpu",
          .summary = "rounds on the first device, cold and warm, beside a read of the same rows",
          .examples = {"--quick --json > gpu.jsonl", "--case=greedy --dtype=bf16 --batch=64"},
          .cases = WordsOf(GpuCases()),
          .seconds = "0.5",
          .quick_seconds = "1",
          .flags = RoundFlags("1,8,32,64,256", "1,64", "1,3,5,8"),
          .run = &RunGpu};
}

}  // namespace specd::bench
