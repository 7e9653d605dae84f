#include "tests/tools/fake_gpu_probes.h"

#include "kernels/core/check.h"

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

GpuResult FakeGpuProbes::CreateEvent(Event** event) {
  const GpuResult result = driver_->Call("CreateEvent");
  if (!result.ok()) return result;
  auto made = std::make_unique<double>(-1);
  *event = reinterpret_cast<Event*>(made.get());
  gpu_->events[*event] = std::move(made);
  return result;
}

GpuResult FakeGpuProbes::DestroyEvent(Event* event) {
  SPECD_CHECK(gpu_->events.erase(event) == 1);
  return driver_->Call("DestroyEvent");
}

GpuResult FakeGpuProbes::RecordEvent(Event* event) {
  return driver_->Enqueue("RecordEvent", true, [=, this] {
    *gpu_->events.at(event) = gpu_->now_us;
    return GpuResult::Ok();
  });
}

GpuResult FakeGpuProbes::ElapsedUs(Event* start, Event* end, double* elapsed_us) {
  const double from = *gpu_->events.at(start);
  const double to = *gpu_->events.at(end);
  if (from < 0 || to < 0) return GpuResult::Error("the event was not recorded");
  *elapsed_us = to - from;
  return driver_->Call("ElapsedUs");
}

}  // namespace specd::bench
