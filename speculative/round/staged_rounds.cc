#include "speculative/round/staged_rounds.h"

#include <algorithm>
#include <utility>

#include "kernels/core/check.h"

namespace specd {

absl::Status StagedRounds::Enqueue(void* stream, int32_t num_sequences) {
  while (ring_.size() < size_t{kStagedRoundsMax}) {
    ring_.push_back({.scratch = RoundScratch(limits_),
                     .results = std::vector<SequenceResult>(static_cast<size_t>(limits_.max_batch)),
                     .decisions = {},
                     .num_inputs = 0});
    if (limits_.records_staged) {
      ring_.back().decisions.resize(static_cast<size_t>(limits_.max_batch) *
                                    static_cast<size_t>(DecisionsStride()));
    }
    ring_.back().scratch.is_staged = true;
  }
  return parts_.backend->EnqueueStaged(stream, num_sequences);
}

void StagedRounds::Stage(std::span<const SequenceInput> inputs) {
  SPECD_CHECK(ring_.size() == size_t{kStagedRoundsMax} && count_ < kStagedRoundsMax);
  Staged& staged = ring_[(first_ + static_cast<size_t>(count_)) % ring_.size()];
  RoundScratch& scratch = staged.scratch;
  staged.num_inputs = inputs.size();
  // Packing a staged round asks the backend for nothing.
  SPECD_CHECK(parts_.packer->Pack(inputs, &scratch, {staged.results.data(), inputs.size()}).ok());
  std::fill(staged.decisions.begin(), staged.decisions.end(), PlaceDecision{});
  while (failure_.ok()) {
    std::fill_n(scratch.outcomes.begin(), scratch.num_tasks, TaskOutcome{});
    RoundBatch batch = parts_.packer->BatchOf(parts_.rows->target, &scratch);
    AddDecisions(&staged, &batch);
    const absl::Status status = parts_.backend->Stage(batch);
    if (status.ok()) break;
    // The round is staged even if it is empty now. Otherwise the next run would use the rows of
    // this round for the next.
    if (!RefuseWithoutRoom(&staged)) failure_ = status;
  }
  for (int32_t i = 0; i < scratch.num_tasks; ++i) {
    parts_.sequences->Hold(scratch.tasks[i].slot);
  }
  ++count_;
}

bool StagedRounds::RefuseWithoutRoom(Staged* staged) {
  RoundScratch& scratch = staged->scratch;
  int32_t num_left = 0;
  for (int32_t i = 0; i < scratch.num_tasks; ++i) {
    const size_t from = i;
    if (scratch.outcomes[from].status == OutcomeStatus::kNoRoom) {
      parts_.committer->RefuseUndecided(OutcomeStatus::kNoRoom,
                                        &staged->results[scratch.task_results[from]]);
      continue;
    }
    const size_t to = num_left++;
    scratch.tasks[to] = scratch.tasks[from];
    scratch.task_results[to] = scratch.task_results[from];
  }
  return std::exchange(scratch.num_tasks, num_left) > num_left;
}

size_t StagedRounds::num_inputs() const { return count_ == 0 ? 0 : ring_[first_].num_inputs; }

bool StagedRounds::Collect(std::span<SequenceResult> results) {
  if (count_ == 0) return false;
  if (failure_.ok()) {
    const absl::StatusOr<bool> done = parts_.backend->Collect();
    if (done.ok() && !*done) return false;
    failure_ = done.status();
  }
  Staged& staged = ring_[first_];
  RoundScratch& scratch = staged.scratch;
  SPECD_CHECK(results.size() == staged.num_inputs);
  ShowRan(&staged);
  for (size_t i = 0; i < results.size(); ++i) RecallResult(staged.results[i], &results[i]);
  for (int32_t i = 0; i < scratch.num_tasks; ++i) {
    const size_t task = i;
    parts_.sequences->Release(scratch.tasks[task].slot);
    SequenceResult& result = results[scratch.task_results[task]];
    if (!failure_.ok()) {
      result.status = RoundStatus::kDeviceError;
      result.method = VerifyMethod::kAuto;  // nothing was verified
    } else if (result.status == RoundStatus::kOk) {
      // RecallResult has found it running.
      Sequence* const sequence = parts_.sequences->Find(result.sequence);
      parts_.committer->Commit(task, &scratch, sequence, &result);
    }
  }
  parts_.committer->CountRound(scratch);
  if (observer_ != nullptr) {
    observer_->Committed(results,
                         {scratch.task_results.data(), static_cast<size_t>(scratch.num_tasks)});
  }
  first_ = (first_ + 1) % ring_.size();
  --count_;
  return true;
}

void StagedRounds::AddDecisions(Staged* staged, RoundBatch* batch) const {
  batch->decisions = staged->decisions.empty() ? nullptr : staged->decisions.data();
  batch->decisions_stride = DecisionsStride();
}

void StagedRounds::ShowRan(Staged* staged) const {
  if (observer_ == nullptr) return;
  RoundBatch batch = parts_.packer->BatchOf(parts_.rows->target, &staged->scratch);
  observer_->Begin(&batch);
  AddDecisions(staged, &batch);
  observer_->Ran({.batch = batch,
                  .status = failure_.ok() ? RoundStatus::kOk : RoundStatus::kDeviceError,
                  .sequences = {},
                  .is_intact = false,
                  .backend = parts_.backend,
                  .draft_columns = parts_.rows->map.columns.data()});
}

// Earlier rounds were answered after this one was packed. The result therefore has the present
// state of its sequence, as if each round had been waited for.
void StagedRounds::RecallResult(const SequenceResult& staged, SequenceResult* result) {
  if (parts_.packer->FindRunning(staged.sequence, result) == nullptr) return;
  result->method = staged.method;
  if (staged.status != RoundStatus::kInvalid) return;
  result->status = staged.status;
  result->refusal = staged.refusal;
}

}  // namespace specd
