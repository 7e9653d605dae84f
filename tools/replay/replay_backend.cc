#include "tools/replay/replay_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/backend_registry.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/make_cuda_backend.h"
#if defined(SPECD_REPLAY_EMULATION)
#include "tests/gpu/emulation/emulated_backend.h"
#endif

namespace specd::replay {

namespace {

using Made = absl::StatusOr<std::unique_ptr<Backend>>;

Made MakeEmulated() {
#if defined(SPECD_REPLAY_EMULATION)
  return std::make_unique<EmulatedBackend>();
#else
  return absl::UnimplementedError("it is in builds with tests (SPECD_BUILD_TESTS=ON) only");
#endif
}

BackendRegistry& ReplayBackends() {
  static auto* const backends = new BackendRegistry(
      {CpuBackendEntry(),
       {.name = "scalar",
        .make = [](const BackendOptions&) -> Made {
          return std::make_unique<CpuBackend>(CpuTarget::kBaseline);
        }},
       {.name = "emulated", .make = [](const BackendOptions&) { return MakeEmulated(); }},
       CudaBackendEntry(&MakeCudaDriver)});
  return *backends;
}

}  // namespace

std::vector<std::string> BackendsHere() {
  std::vector<std::string> names = ReplayBackends().Names();
  std::erase_if(names, [](const std::string& name) { return !ReplayBackends().Make(name).ok(); });
  return names;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeNamedBackend(std::string_view name) {
  Made made = ReplayBackends().Make(name);
  if (made.ok()) return made;
  return absl::Status(made.status().code(), fmt::format("backend = {}: {}; here are: {}", name,
                                                        std::string(made.status().message()),
                                                        fmt::join(BackendsHere(), ", ")));
}

absl::Status ReplayBackend::Prepare(int32_t vocab_size, int32_t num_tasks) {
  if (vocab_size <= vocab_size_ && num_tasks <= max_batch_) return absl::OkStatus();
  vocab_size_ = std::max(vocab_size_, vocab_size);
  max_batch_ = std::max(max_batch_, num_tasks);
  BackendLimits limits;
  limits.vocab_size = vocab_size_;
  limits.max_batch = max_batch_;
  limits.max_draft = kNodesMax;
  limits.threads = threads_;
  limits.num_slots = static_cast<uint32_t>(max_batch_);
  return backend_->Prepare(limits);
}

absl::Status ReplayBackend::Run(RoundRebuilder* round) {
  if (round->tasks().empty()) return absl::OkStatus();
  const RoundBatch& batch = round->batch();
  if (absl::Status status = Prepare(batch.target.vocab_size, batch.num_tasks); !status.ok()) {
    return status;
  }
  round->ClearAnswers();
  return backend_->Run(batch);
}

absl::Status ReplayBackend::Transform(const TransformBatch& batch) {
  if (absl::Status status = Prepare(batch.source.vocab_size, 1); !status.ok()) return status;
  return backend_->Transform(batch);
}

}  // namespace specd::replay
