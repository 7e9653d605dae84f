#include <algorithm>
#include <utility>

#include "speculative/verifier.h"

namespace specd {

absl::Status Verifier::EnqueueStaged(void* stream, int32_t num_sequences) {
  while (staged_.size() < size_t{kStagedRoundsMax}) {
    staged_.push_back({RoundScratch(options_.limits),
                       std::vector<RoundResult>(static_cast<size_t>(options_.limits.max_batch)),
                       0});
  }
  return backend_->EnqueueStaged(stream, num_sequences);
}

void Verifier::StageRound(std::span<const RoundInput> inputs) {
  SPECD_CHECK(staged_.size() == size_t{kStagedRoundsMax} && num_staged_ < kStagedRoundsMax);
  Staged& staged = staged_[(first_staged_ + static_cast<size_t>(num_staged_)) % staged_.size()];
  RoundScratch& scratch = staged.scratch;
  staged.num_inputs = inputs.size();
  PackRound(inputs, &scratch, {staged.results.data(), inputs.size()});
  while (staging_failure_.ok()) {
    std::fill_n(scratch.outcomes.begin(), scratch.num_tasks, ChainOutcome{});
    const absl::Status status = backend_->Stage(BatchOf(target_, &scratch));
    if (status.ok()) break;
    // Staged it is, were it empty, or what runs next would take the rows of this round for those of
    // the next.
    if (!RefuseWithoutRoom(&staged)) staging_failure_ = status;
  }
  for (int32_t i = 0; i < scratch.num_tasks; ++i) {
    sequences_.Hold(scratch.tasks[static_cast<size_t>(i)].slot);
  }
  ++num_staged_;
}

bool Verifier::RefuseWithoutRoom(Staged* staged) {
  RoundScratch& scratch = staged->scratch;
  int32_t num_left = 0;
  for (int32_t i = 0; i < scratch.num_tasks; ++i) {
    const auto from = static_cast<size_t>(i);
    if (scratch.outcomes[from].status == OutcomeStatus::kNoRoom) {
      RefuseForRoom(&staged->results[scratch.task_results[from]]);
      continue;
    }
    const auto to = static_cast<size_t>(num_left++);
    scratch.tasks[to] = scratch.tasks[from];
    scratch.task_results[to] = scratch.task_results[from];
  }
  return std::exchange(scratch.num_tasks, num_left) > num_left;
}

size_t Verifier::num_staged_inputs() const {
  return num_staged_ == 0 ? 0 : staged_[first_staged_].num_inputs;
}

bool Verifier::CollectRound(std::span<RoundResult> results) {
  if (num_staged_ == 0) return false;
  if (staging_failure_.ok()) {
    const absl::StatusOr<bool> done = backend_->Collect();
    if (done.ok() && !*done) return false;
    staging_failure_ = done.status();
  }
  Staged& staged = staged_[first_staged_];
  SPECD_CHECK(results.size() == staged.num_inputs);
  for (size_t i = 0; i < results.size(); ++i) RecallResult(staged.results[i], &results[i]);
  for (int32_t i = 0; i < staged.scratch.num_tasks; ++i) {
    sequences_.Release(staged.scratch.tasks[static_cast<size_t>(i)].slot);
  }
  CommitRound(Succeeded(staging_failure_) ? RoundStatus::kOk : RoundStatus::kDeviceError,
              &staged.scratch, results);
  first_staged_ = (first_staged_ + 1) % staged_.size();
  --num_staged_;
  return true;
}

// Rounds before it were answered since: what it says of its sequence is of now, as it would be had
// each round been waited for.
void Verifier::RecallResult(const RoundResult& staged, RoundResult* result) {
  if (FindRunning(staged.sequence, result) == nullptr || staged.status != RoundStatus::kInvalid) {
    return;
  }
  result->status = staged.status;
  result->fault = staged.fault;
}

}  // namespace specd
