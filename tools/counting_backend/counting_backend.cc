// A backend from outside specd, as a plugin: "counting" has the CPU backend run the rounds and
// counts them. The counts go to stderr when a session ends. docs/BACKENDS.md explains the parts.
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <utility>

#include "kernels/backend.h"
#include "kernels/backend_plugin.h"

namespace {

class CountingBackend final : public specd::Backend {
 public:
  explicit CountingBackend(std::unique_ptr<specd::Backend> cpu) : cpu_(std::move(cpu)) {}
  ~CountingBackend() override {
    if (num_runs_ == 0) return;
    std::fprintf(stderr, "counting: %" PRId64 " runs, %" PRId64 " tasks\n", num_runs_, num_tasks_);
  }

  std::string_view name() const override { return "counting"; }
  absl::Status Prepare(const specd::BackendLimits& limits) override {
    return cpu_->Prepare(limits);
  }
  absl::Status Run(const specd::RoundBatch& batch) override {
    ++num_runs_;
    num_tasks_ += batch.num_tasks;
    return cpu_->Run(batch);
  }
  absl::Status WriteSlotOutputs(const specd::RoundBatch& batch) override {
    return cpu_->WriteSlotOutputs(batch);
  }
  absl::Status Transform(const specd::TransformBatch& batch) override {
    return cpu_->Transform(batch);
  }

 private:
  const std::unique_ptr<specd::Backend> cpu_;
  int64_t num_runs_ = 0;
  int64_t num_tasks_ = 0;
};

absl::StatusOr<std::unique_ptr<specd::Backend>> MakeCounting(specd::BackendRegistry* registry) {
  absl::StatusOr<std::unique_ptr<specd::Backend>> cpu = registry->Make("cpu");
  if (!cpu.ok()) return cpu.status();
  return std::make_unique<CountingBackend>(*std::move(cpu));
}

}  // namespace

SPECD_BACKEND_PLUGIN(registry) {
  const auto make = [&registry](const specd::BackendOptions&) { return MakeCounting(&registry); };
  return registry.Register({.name = "counting", .make = make});
}
