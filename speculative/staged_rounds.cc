#include <algorithm>
#include <utility>

#include "speculative/verifier.h"

namespace specd {

absl::Status Verifier::StageRound(std::span<const RoundInput> inputs) {
  SPECD_CHECK(num_staged_ < kStagedRoundsMax);
  while (staged_.size() < size_t{kStagedRoundsMax}) {
    staged_.push_back({RoundScratch(options_.limits),
                       std::vector<RoundResult>(static_cast<size_t>(options_.limits.max_batch)),
                       0});
  }
  Staged& staged = staged_[(first_staged_ + static_cast<size_t>(num_staged_)) % staged_.size()];
  RoundScratch& scratch = staged.scratch;
  staged.num_inputs = inputs.size();
  PackRound(inputs, &scratch, {staged.results.data(), inputs.size()});
  absl::Status status = backend_->Stage(BatchOf(target_, &scratch));
  if (!status.ok()) {
    // Refused as a whole, such as for want of room. An empty round takes its place, or what runs
    // next would take the rows of this one for those of the next.
    RefuseTasks("the round does not fit into the memory that staged rounds have", &staged);
    status = backend_->Stage(BatchOf(target_, &scratch));
  }
  if (!status.ok()) return status;
  for (int32_t i = 0; i < scratch.num_tasks; ++i) {
    const RoundResult& result = staged.results[scratch.task_results[static_cast<size_t>(i)]];
    ++sequences_.Find(result.sequence)->rounds_in_flight;
  }
  ++num_staged_;
  return absl::OkStatus();
}

void Verifier::RefuseTasks(std::string_view reason, Staged* staged) {
  for (int32_t i = 0; i < staged->scratch.num_tasks; ++i) {
    RoundResult& result = staged->results[staged->scratch.task_results[static_cast<size_t>(i)]];
    result.status = RoundStatus::kInvalid;
    result.reason = reason;
    ++counters_.invalid_records;
  }
  staged->scratch.num_tasks = 0;
}

size_t Verifier::num_staged_inputs() const {
  return num_staged_ == 0 ? 0 : staged_[first_staged_].num_inputs;
}

bool Verifier::CollectRound(std::span<RoundResult> results) {
  if (num_staged_ == 0) return false;
  const absl::StatusOr<bool> done = backend_->Collect();
  if (done.ok() && !*done) return false;
  Staged& staged = staged_[first_staged_];
  SPECD_CHECK(results.size() == staged.num_inputs);
  std::copy_n(staged.results.begin(), staged.num_inputs, results.begin());
  for (int32_t i = 0; i < staged.scratch.num_tasks; ++i) {
    const RoundResult& result = results[staged.scratch.task_results[static_cast<size_t>(i)]];
    Sequence* sequence = sequences_.Find(result.sequence);
    if (sequence != nullptr) --sequence->rounds_in_flight;
  }
  CommitRound(done.ok() ? RoundStatus::kOk : RoundStatus::kDeviceError, &staged.scratch, results);
  first_staged_ = (first_staged_ + 1) % staged_.size();
  --num_staged_;
  return true;
}

}  // namespace specd
