#include "tools/replay/replay_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#if defined(SPECD_REPLAY_EMULATION)
#include "tools/emulation/emulated_backend.h"
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

struct NamedBackend {
  std::string_view name;
  Made (*make)();
};

constexpr NamedBackend kBackends[] = {
    {"cpu", [] { return MakeBackend("cpu"); }},
    {"scalar", []() -> Made { return std::make_unique<CpuBackend>(CpuTarget::kBaseline); }},
    {"emulated", &MakeEmulated},
    {"cuda", [] { return MakeBackend("cuda"); }},
};

}  // namespace

std::vector<std::string_view> BackendsHere() {
  std::vector<std::string_view> names;
  for (const NamedBackend& backend : kBackends) {
    if (backend.make().ok()) names.push_back(backend.name);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeNamedBackend(std::string_view name) {
  absl::Status why = absl::InvalidArgumentError("no backend has this name");
  for (const NamedBackend& backend : kBackends) {
    if (backend.name != name) continue;
    Made made = backend.make();
    if (made.ok()) return made;
    why = made.status();
  }
  return absl::Status(
      why.code(), fmt::format("backend = {}: {}; here are: {}", name, std::string(why.message()),
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
