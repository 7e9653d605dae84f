// RunSuite runs specd-bench gpu over a fake driver for tests, with small sizes, and returns its
// measurements. It runs on the calling thread.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/make_cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/tools/fake_gpu_probes.h"
#include "tools/bench/gpu_suite.h"

namespace specd::bench {

inline VerifyOptions SmallOptions() {
  VerifyOptions options;
  for (const VerifyCase& known : GpuCases()) options.cases.push_back(&known);
  options.vocab_sizes = {2500};  // larger than a tile, and no multiple of a mask's word
  options.batches = {3};
  options.drafts = {2};
  options.dtypes = {DType::kFloat32, DType::kBFloat16};
  options.seconds = 0.001;
  return options;
}

inline absl::StatusOr<OpenGpu> OpenFakeGpu(ProbedGpu* gpu) {
  auto driver = std::make_unique<FakeGpuDriver>(gpu);
  FakeGpuDriver* const fake = driver.get();
  return OpenFirstGpu(std::move(driver),
                      [&](GpuDriver*) { return std::make_unique<FakeGpuProbes>(gpu, fake); });
}

struct SuiteRun {
  absl::Status status;
  std::vector<Measurement> measurements;
};

// on_backend is called when the backend for whole rounds is made, after the launches were timed.
inline SuiteRun RunSuite(
    const VerifyOptions& options, ProbedGpu* gpu, const std::function<void()>& on_backend = [] {}) {
  SuiteRun run;
  const absl::StatusOr<OpenGpu> open = OpenFakeGpu(gpu);
  REQUIRE(open.ok());
  run.status =
      MeasureGpu(options, *open,
                 {.make_backend =
                      [&] {
                        on_backend();
                        return MakeCudaBackend(std::make_unique<FakeGpuDriver>(gpu));
                      },
                  .on_progress = [](std::string_view) {},
                  .on_result = [&](const Measurement& m) { run.measurements.push_back(m); }});
  return run;
}

inline VerifyOptions OnlyCase(std::string_view name) {
  VerifyOptions options = SmallOptions();
  REQUIRE(FindCase(GpuCases(), name) != nullptr);
  options.cases = {FindCase(GpuCases(), name)};
  options.dtypes = {DType::kBFloat16};
  return options;
}

inline bool Mentions(const absl::Status& status, std::string_view text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

inline bool IsEmpty(const ProbedGpu& gpu) {
  return gpu.allocations.empty() && gpu.pinned.empty() && gpu.graphs.empty() && gpu.events.empty();
}

}  // namespace specd::bench
