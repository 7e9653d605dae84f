#include "tests/tools/fake_gpu_probes.h"

namespace specd::bench {

GpuResult FakeGpuProbes::Load() { return driver_->Call("Load"); }

GpuResult FakeGpuProbes::LaunchRead(const ReadPlan& plan) {
  return driver_->Enqueue("LaunchRead", true, [=, this] { return RunRead(plan); });
}

GpuResult FakeGpuProbes::RunRead(const ReadPlan& plan) {
  GpuResult result = driver_->CheckRange("read", plan.rows, sizeof(void*) * plan.num_rows);
  if (result.ok()) result = driver_->CheckRange("sink", plan.sink, sizeof(*plan.sink));
  for (int32_t i = 0; i < plan.num_rows && result.ok(); ++i) {
    result = driver_->CheckRange("row", plan.rows[i], static_cast<size_t>(plan.row_bytes));
  }
  gpu_->now_us += gpu_->read_us;
  return result;
}

GpuResult FakeGpuProbes::RecordEvent(size_t event) {
  return driver_->Enqueue("RecordEvent", true, [=, this] {
    gpu_->events[event] = gpu_->now_us;
    return GpuResult::Ok();
  });
}

GpuResult FakeGpuProbes::ElapsedUs(size_t event, double* elapsed_us) {
  if (!gpu_->events.contains(event) || !gpu_->events.contains(event + 1)) {
    return GpuResult::Error("the event was not recorded");
  }
  *elapsed_us = gpu_->events[event + 1] - gpu_->events[event];
  return driver_->Call("ElapsedUs");
}

}  // namespace specd::bench
