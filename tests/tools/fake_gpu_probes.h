// FakeGpuProbes is a GpuProbes over FakeGpuDriver for tests of specd-bench gpu: a probe checks its
// memory and advances the clock, and any call can fail.
#pragma once

#include <cstddef>
#include <map>

#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tools/bench/probes/gpu_probes.h"

namespace specd::bench {

// A FakeGpu with the times of probes. FakeGpu::failing_call also names the functions of GpuProbes.
struct ProbedGpu : FakeGpu {
  std::map<size_t, double> events;  // when each was recorded
  double read_us = 4;
};

class FakeGpuProbes final : public GpuProbes {
 public:
  // `driver` is over `gpu`; both outlive the probes.
  FakeGpuProbes(ProbedGpu* gpu, FakeGpuDriver* driver) : gpu_(gpu), driver_(driver) {}

  GpuResult Load() override;
  GpuResult LaunchRead(const ReadPlan& plan) override;
  GpuResult RecordEvent(size_t event) override;
  GpuResult ElapsedUs(size_t event, double* elapsed_us) override;

 private:
  GpuResult RunRead(const ReadPlan& plan);

  ProbedGpu* gpu_;
  FakeGpuDriver* driver_;
};

}  // namespace specd::bench
