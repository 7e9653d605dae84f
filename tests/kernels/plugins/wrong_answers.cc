// Backends that have the CPU run the rounds and spoil one number of each answer: "wrong_count" the
// number of tokens, "wrong_id" the first id. "wrong_while" takes another id of the vocabulary while
// the file is there that SPECD_WRONG_WHILE names. For outside_backend_test.py and canary_test.py.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/backend_plugin.h"

namespace {

using Spoil = void (*)(const specd::RoundBatch& batch);

void SpoilCount(const specd::RoundBatch& batch) { batch.outcomes[0].num_tokens = 1 << 20; }
void SpoilId(const specd::RoundBatch& batch) { batch.tokens[0] = 1 << 30; }
void SpoilWhile(const specd::RoundBatch& batch) {
  const char* const file = std::getenv("SPECD_WRONG_WHILE");
  if (file != nullptr && access(file, F_OK) == 0) batch.tokens[0] ^= 1;
}

class WrongBackend final : public specd::Backend {
 public:
  WrongBackend(std::string name, Spoil spoil, std::unique_ptr<specd::Backend> cpu)
      : name_(std::move(name)), spoil_(spoil), cpu_(std::move(cpu)) {}

  std::string_view name() const override { return name_; }
  absl::Status Prepare(const specd::BackendLimits& limits) override {
    return cpu_->Prepare(limits);
  }
  absl::Status Run(const specd::RoundBatch& batch) override {
    absl::Status status = cpu_->Run(batch);
    spoil_(batch);
    return status;
  }
  absl::Status WriteSlotOutputs(const specd::RoundBatch& batch) override {
    return cpu_->WriteSlotOutputs(batch);
  }
  absl::Status Transform(const specd::TransformBatch& batch) override {
    return cpu_->Transform(batch);
  }

 private:
  const std::string name_;
  const Spoil spoil_;
  const std::unique_ptr<specd::Backend> cpu_;
};

absl::Status Register(specd::BackendRegistry* registry, const std::string& name, Spoil spoil) {
  return registry->Register({.name = name,
                             .make = [registry, name, spoil](const specd::BackendOptions&)
                                 -> absl::StatusOr<std::unique_ptr<specd::Backend>> {
                               absl::StatusOr<std::unique_ptr<specd::Backend>> cpu =
                                   registry->Make("cpu");
                               if (!cpu.ok()) return cpu.status();
                               return std::make_unique<WrongBackend>(name, spoil, *std::move(cpu));
                             }});
}

}  // namespace

SPECD_BACKEND_PLUGIN(registry) {
  for (const auto& [name, spoil] : {std::pair{"wrong_count", &SpoilCount},
                                    {"wrong_id", &SpoilId},
                                    {"wrong_while", &SpoilWhile}}) {
    if (absl::Status status = Register(&registry, name, spoil); !status.ok()) return status;
  }
  return absl::OkStatus();
}
