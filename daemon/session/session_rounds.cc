#include "daemon/session/session_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/session/tensor_role.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

SessionRounds::SessionRounds(SessionState* state, SessionMemory* memory,
                             SessionSequences* sequences)
    : state_(*state),
      memory_(*memory),
      sequences_(*sequences),
      results_(state->options.limits.max_batch) {}

bool SessionRounds::HasRoom() const {
  const SessionLimits& limits = state_.options.limits;
  // The room covers this round's tokens and scores, and an end for every sequence.
  return state_.events == nullptr ||
         state_.events->HasRoom({.events = size_t{limits.max_batch} + limits.max_sequences,
                                 .tokens = size_t{limits.max_batch} * limits.max_output(),
                                 .scores = limits.max_batch * limits.max_output_scores()});
}

void SessionRounds::Do(SubmissionCopy* submission, bool is_alone) {
  if (!submission->staged()) {
    ShowTaken(*submission);
    if (state_.channel.IsAborted(*submission)) {
      // The round's CUDA stream was released long ago; the engine may write other rows there by
      // now.
      const std::span<SequenceResult> results = ResultsOf(*submission);
      for (size_t i = 0; i < results.size(); ++i) {
        results[i].sequence = submission->records()[i].sequence;
      }
      AbortAll(results);
      Answer(*submission);
      return;
    }
    if (marked_number_ == submission->position() + 1 && state_.verifier->has_constraints()) {
      // The engine's thread has nothing else to do while its target model runs.
      MaskWarmth warmth{.drafts = MaskWarmth::Drafts::kMarked};
      while (state_.verifier->WarmMasks(submission->records(), &warmth)) {
      }
    }
    state_.verifier->BeginRound(submission->records(), ResultsOf(*submission),
                                submission->on_stream(), is_alone);
    return RunPiece(*submission);
  }
  state_.verifier->StageRound(submission->records());
  const auto last = static_cast<size_t>(state_.verifier->num_staged() - 1);
  std::swap(*submission, staged_[(first_staged_ + last) % staged_.size()]);
}

void SessionRounds::ShowTaken(const SubmissionCopy& submission) {
  if (state_.trace == nullptr) return;
  state_.trace->Taken({.round_id = submission.round_id(),
                       .on_stream = submission.on_stream(),
                       .staged = submission.staged(),
                       .times = {.submitted = static_cast<int64_t>(submission.submit_ns()),
                                 .taken = static_cast<int64_t>(submission.taken_ns())}});
}

bool SessionRounds::IsPrepared(uint64_t position) const {
  if (!state_.verifier->has_constraints()) return true;
  if (prepared_.position != position || !prepared_.is_done) return false;
  // The mark of draft tokens may come after the masks of all first places are built.
  return prepared_.warmth.drafts != MaskWarmth::Drafts::kUnknown ||
         !state_.channel.AreDraftsMarked();
}

bool SessionRounds::Prepare(const SubmissionCopy& submission) {
  if (prepared_.position != submission.position()) prepared_ = {.position = submission.position()};
  MaskWarmth& warmth = prepared_.warmth;
  if (warmth.drafts == MaskWarmth::Drafts::kUnknown && state_.channel.AreDraftsMarked()) {
    warmth.drafts = MaskWarmth::Drafts::kMarked;
  }
  prepared_.is_done = !state_.verifier->WarmMasks(submission.records(), &warmth);
  return !prepared_.is_done;
}

void SessionRounds::RunPiece(const SubmissionCopy& submission) {
  const bool has_more = state_.verifier->RunPiece();
  state_.between_pieces.store(has_more, std::memory_order_relaxed);
  if (has_more) return;
  RoundMeters* const meters = state_.options.meters;
  const int64_t judged_ns = meters == nullptr ? 0 : state_.options.clock->NowNs();
  End(submission);
  const int64_t answered_ns = Answer(submission);
  if (meters != nullptr) {
    Count(submission, {.judged_ns = judged_ns, .answered_ns = answered_ns}, meters);
  }
}

void SessionRounds::Count(const SubmissionCopy& submission, const RoundTimes& times,
                          RoundMeters* meters) {
  const auto taken_ns = static_cast<int64_t>(submission.taken_ns());
  const auto submit_ns = static_cast<int64_t>(submission.submit_ns());  // the engine's word
  meters->wait.Add(submit_ns < 0 ? 0 : taken_ns - submit_ns);
  meters->verify.Add(times.judged_ns - taken_ns);
  meters->commit.Add(times.answered_ns - times.judged_ns);
  if (state_.verifier->has_constraints()) meters->mask.Add(state_.verifier->TakeMaskNs());
  for (const SequenceResult& result : ResultsOf(submission)) {
    if (result.refusal != Refusal::kNone) {
      PerRefusal& reasons =
          result.status == RoundStatus::kInvalid ? meters->refusals : meters->bad_rows;
      ++reasons[static_cast<size_t>(result.refusal)];
    }
    if (IsCommitted(result) && IsLossy(result.method)) ++meters->lossy;
    if (!IsCommitted(result) || result.num_drafts == 0) continue;
    ++meters->drafts;
    for (uint32_t i = 0; i < result.num_accepted; ++i) ++meters->accepted_at[i];
  }
}

void SessionRounds::End(const SubmissionCopy& submission) {
  const std::span<SequenceResult> results = ResultsOf(submission);
  if (!submission.on_stream()) {
    return state_.verifier->EndRound(results, [this] { return !state_.has_faulted.load(); });
  }
  // Before the claim the engine's CUDA stream may be released, and its rows and slot outputs
  // written anew. After the claim the CUDA stream waits for the answer.
  state_.verifier->EndRound(results, [this, &submission] {
    state_.mutex.AssertHeld();
    return !state_.has_faulted.load() && state_.channel.Claim(submission);
  });
}

void SessionRounds::CallOff(const SubmissionCopy& submission) {
  state_.between_pieces.store(false, std::memory_order_relaxed);
  state_.verifier->CallOffRound(ResultsOf(submission));
  Answer(submission, /*called_off=*/true);
}

void SessionRounds::Drop(const SubmissionCopy& submission) {
  state_.between_pieces.store(false, std::memory_order_relaxed);
  const std::span<SequenceResult> results = ResultsOf(submission);
  state_.verifier->CallOffRound(results);
  if (state_.trace != nullptr) state_.trace->Answered(results, state_.options.clock->NowNs());
}

void SessionRounds::AbortAll(std::span<SequenceResult> results) {
  for (SequenceResult& result : results) {
    const SequenceHandle sequence = result.sequence;
    result = {};
    result.sequence = sequence;
    result.status = RoundStatus::kAborted;
  }
}

int64_t SessionRounds::Answer(const SubmissionCopy& submission, bool called_off) {
  const std::span<SequenceResult> results = ResultsOf(submission);
  bool failed = submission.malformed() || called_off || state_.has_faulted.load();
  for (const SequenceResult& result : results) {
    if (result.status == RoundStatus::kDeviceError) {
      failed = true;
      state_.device_failed.store(true, std::memory_order_relaxed);
    }
    // Written before the completion: an engine that has read the completion finds the state in
    // agreement.
    if (IsCommitted(result) && result.finish_reason != FinishReason::kNone) {
      sequences_.WriteEnd(result);
    }
  }
  // Two kinds of rounds are not claimed yet: rounds with nothing to commit, and rounds without a
  // CUDA stream, which cannot be called off.
  if (failed) {
    state_.channel.Withdraw(submission);  // a write after the claim may fail
  } else if (!state_.channel.Claim(submission) && submission.on_stream()) {
    AbortAll(results);
  }
  const int64_t done_ns = state_.options.clock->NowNs();
  state_.channel.Complete(submission, std::span<const SequenceResult>(results),
                          static_cast<uint64_t>(done_ns));
  if (state_.trace != nullptr) {
    state_.trace->Answered(results, state_.options.clock->NowNs());
  }
  if (state_.events == nullptr) return done_ns;
  for (const SequenceResult& result : results) {
    if (IsCommitted(result)) sequences_.Publish(result, done_ns);
  }
  return done_ns;
}

absl::Status SessionRounds::MarkDrafts(void* stream, uint64_t number) {
  MutexLock lock(&state_.mutex);
  const absl::Status status = state_.verifier->MarkDrafts(stream);
  if (status.ok()) {
    marked_number_ = number;
    return status;
  }
  const int code = ErrorCodeOf(status);
  return MakeError(code, code == SPECD_ERROR_UNSUPPORTED ? "uri" : "cuda_stream",
                   std::string(status.message()));
}

// ---- rounds inside the engine's CUDA graph

absl::Status SessionRounds::CheckStaging() {
  MutexLock lock(&state_.mutex);
  if (absl::Status status = CheckBoundForStaging(); !status.ok()) return status;
  // EnqueueStaged takes all memory, so a staged round finds its memory there.
  if (can_stage_) return absl::OkStatus();
  return MakeError(SPECD_ERROR_STATE, "drafts",
                   "nothing would run a staged round; call specd_enqueue_staged first");
}

absl::Status SessionRounds::CheckBoundForStaging() {
  const Backend& backend = state_.backend;
  if (!state_.options.may_stage || backend.device_uuid().empty()) {
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "uri",
        fmt::format("rounds of this session run on \"{}\", which is in no graph of the "
                    "engine's; open embedded:cuda, or use specd_submit",
                    backend.name()));
  }
  for (const auto& [role, bound] : memory_.bound()) {
    if (bound.space == MemorySpace::kDevice) continue;
    if (bound.space == MemorySpace::kOtherDevice) {
      // A bound region stays registered.
      return MakeError(
          SPECD_ERROR_STATE, "region",
          fmt::format("{} is bound to region = {}, which is memory of {}, and rounds run on {}: "
                      "inside a graph nobody carries ids to another device; bind memory of that "
                      "one and copy the ids behind the round, or use specd_submit",
                      NameOf(role), bound.id,
                      memory_.regions().device().Find(bound.id)->device_uuid,
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

absl::Status SessionRounds::EnqueueStaged(void* stream, uint32_t num_sequences) {
  MutexLock lock(&state_.mutex);
  if (absl::Status status = CheckBoundForStaging(); !status.ok()) return status;
  if (stream == nullptr) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "cuda_stream",
                     "cuda_stream is NULL; give the cudaStream_t that is capturing, or "
                     "cudaStreamLegacy for the default one");
  }
  if (num_sequences == 0 || num_sequences > state_.options.limits.max_batch) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "num_sequences",
                     fmt::format("num_sequences = {} is outside 1 .. {} (max_batch of specd_open)",
                                 num_sequences, state_.options.limits.max_batch));
  }
  while (staged_.size() < size_t{kStagedRoundsMax}) staged_.emplace_back(state_.options.limits);
  absl::Status status = state_.verifier->EnqueueStaged(stream, static_cast<int32_t>(num_sequences));
  can_stage_ = can_stage_ || status.ok();
  // The width was checked before, so the error is about the CUDA stream.
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "cuda_stream", std::string(status.message()));
  }
  return status;
}

bool SessionRounds::Collect() {
  if (state_.verifier->num_staged() > 0) ShowTaken(staged_[first_staged_]);
  if (!state_.verifier->CollectRound({results_.data(), state_.verifier->num_staged_inputs()})) {
    return false;
  }
  Answer(staged_[first_staged_]);
  first_staged_ = (first_staged_ + 1) % staged_.size();
  return true;
}

}  // namespace specd
