// Two backends that have the CPU run the rounds and spoil one number of each answer: "wrong_count"
// the number of tokens, "wrong_id" the first id. For outside_backend_test.py.
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/backend_plugin.h"

namespace {

class WrongBackend final : public specd::Backend {
 public:
  WrongBackend(bool in_count, std::unique_ptr<specd::Backend> cpu)
      : in_count_(in_count), cpu_(std::move(cpu)) {}

  std::string_view name() const override { return in_count_ ? "wrong_count" : "wrong_id"; }
  absl::Status Prepare(const specd::BackendLimits& limits) override {
    return cpu_->Prepare(limits);
  }
  absl::Status Run(const specd::RoundBatch& batch) override {
    absl::Status status = cpu_->Run(batch);
    if (in_count_) batch.outcomes[0].num_tokens = 1 << 20;
    if (!in_count_) batch.tokens[0] = 1 << 30;
    return status;
  }
  absl::Status WriteSlotOutputs(const specd::RoundBatch& batch) override {
    return cpu_->WriteSlotOutputs(batch);
  }
  absl::Status Transform(const specd::TransformBatch& batch) override {
    return cpu_->Transform(batch);
  }

 private:
  const bool in_count_;
  const std::unique_ptr<specd::Backend> cpu_;
};

absl::Status Register(specd::BackendRegistry* registry, std::string name, bool in_count) {
  return registry->Register({.name = std::move(name),
                             .make = [registry, in_count](const specd::BackendOptions&)
                                 -> absl::StatusOr<std::unique_ptr<specd::Backend>> {
                               absl::StatusOr<std::unique_ptr<specd::Backend>> cpu =
                                   registry->Make("cpu");
                               if (!cpu.ok()) return cpu.status();
                               return std::make_unique<WrongBackend>(in_count, *std::move(cpu));
                             }});
}

}  // namespace

SPECD_BACKEND_PLUGIN(registry) {
  if (absl::Status status = Register(&registry, "wrong_count", true); !status.ok()) return status;
  return Register(&registry, "wrong_id", false);
}
