#include "tools/replay/replay_backend.h"

#include <algorithm>

namespace specd::replay {

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
