// Rounds that run inside a graph of the engine's, where engine and session are one process.
#include <fmt/format.h>

#include <utility>

#include "daemon/session/session.h"
#include "daemon/session/tensor_role.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

absl::Status Session::CheckStaging() {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckBoundForStaging(); !status.ok()) return status;
  // All memory is taken there, so that a round that is taken finds it.
  if (can_stage_) return absl::OkStatus();
  return MakeError(SPECD_ERROR_STATE, "drafts",
                   "nothing would run a staged round; call specd_enqueue_staged first");
}

absl::Status Session::CheckBoundForStaging() {
  const Backend& backend = verifier_->backend();
  if (!options_.may_stage || backend.device_uuid().empty()) {
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "uri",
        fmt::format("rounds of this session run on \"{}\", which is in no graph of the "
                    "engine's; open embedded:cuda, or use specd_submit",
                    backend.name()));
  }
  for (const auto& [role, bound] : bound_regions_) {
    if (bound.space == MemorySpace::kDevice) continue;
    if (bound.space == MemorySpace::kOtherDevice) {
      // Registered as long as it is bound.
      return MakeError(
          SPECD_ERROR_STATE, "region",
          fmt::format("{} is bound to region = {}, which is memory of {}, and rounds run on {}: "
                      "inside a graph nobody carries ids to another device; bind memory of that "
                      "one and copy the ids behind the round, or use specd_submit",
                      NameOf(role), bound.id, regions_.device().Find(bound.id)->device_uuid,
                      backend.device_uuid()));
    }
    return MakeError(SPECD_ERROR_STATE, "region",
                     fmt::format("{} is bound to region = {}, which is not memory of the device "
                                 "that rounds run on, and inside a graph nobody copies it; bind "
                                 "memory from specd_import_device",
                                 NameOf(role), bound.id));
  }
  return absl::OkStatus();
}

absl::Status Session::EnqueueStaged(void* stream, uint32_t num_sequences) {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckBoundForStaging(); !status.ok()) return status;
  if (stream == nullptr) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "cuda_stream",
                     "cuda_stream is NULL; give the cudaStream_t that is capturing, or "
                     "cudaStreamLegacy for the default one");
  }
  if (num_sequences == 0 || num_sequences > options_.limits.max_batch) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "num_sequences",
                     fmt::format("num_sequences = {} is outside 1 .. {} (max_batch of specd_open)",
                                 num_sequences, options_.limits.max_batch));
  }
  while (staged_.size() < size_t{kStagedRoundsMax}) staged_.emplace_back(options_.limits);
  absl::Status status = verifier_->EnqueueStaged(stream, static_cast<int32_t>(num_sequences));
  can_stage_ = can_stage_ || status.ok();
  // The width has been looked at, so this is about the stream.
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "cuda_stream", std::string(status.message()));
  }
  return status;
}

void Session::StageRound() {
  verifier_->StageRound(InputsOf(submission_));
  const auto last = static_cast<size_t>(verifier_->num_staged() - 1);
  std::swap(submission_, staged_[(first_staged_ + last) % staged_.size()]);
}

bool Session::CollectRound() {
  if (!verifier_->CollectRound({results_.data(), verifier_->num_staged_inputs()})) return false;
  AnswerRound(staged_[first_staged_]);
  first_staged_ = (first_staged_ + 1) % staged_.size();
  return true;
}

}  // namespace specd
