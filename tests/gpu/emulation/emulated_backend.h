// EmulatedBackend runs rounds on emulated CUDA blocks for specd-replay: the source that nvcc
// compiles, a block of warps for each task.
//
// It is some 50 times slower than the CPU's own backend. If warps miss each other, a GPU would
// hang; here Run returns INTERNAL with the place. One thread, and one round at a time in the
// process.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace specd {

class EmulatedBackend final : public Backend {
 public:
  EmulatedBackend();
  ~EmulatedBackend() override;

  std::string_view name() const override { return "emulated"; }
  absl::Status Prepare(const BackendLimits& limits) override;
  absl::Status Run(const RoundBatch& batch) override;
  absl::Status WriteSlotOutputs(const RoundBatch& batch) override;
  absl::Status Transform(const TransformBatch& batch) override;

 private:
  // The round with resolved tasks.
  absl::Status Resolve(RoundBatch* batch);

  BackendLimits limits_;
  std::vector<std::byte> workspace_;
  std::vector<Task> resolved_;
  std::unique_ptr<char[]> resolve_scratch_;
};

}  // namespace specd
