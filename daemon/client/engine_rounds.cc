#include "daemon/client/engine_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "absl/time/clock.h"
#include "daemon/base/clock.h"
#include "daemon/client/struct_array.h"
#include "ipc/base/error.h"
#include "kernels/backend.h"

namespace specd {
namespace {

absl::Status CheckPollTimeout(int timeout_ms) {
  if (timeout_ms >= -1) return absl::OkStatus();
  return Invalid("timeout_ms", fmt::format("timeout_ms = {} is less than -1", timeout_ms));
}

bool WasAborted(const CompletionView& view) {
  return !view.results.empty() && view.results[0].status == RoundStatus::kAborted;
}

}  // namespace

EngineRounds::EngineRounds(EngineLink* link, Segment* segment, uint32_t stream_timeout_ms,
                           int32_t spin_us)
    : link_(*link),
      segment_(*segment),
      channel_(segment),
      wait_(link, &channel_, spin_us),
      streams_(link, segment, stream_timeout_ms),
      inputs_(segment->limits().max_batch),
      row_numbers_(segment->limits()) {}

template <class Drafts>
absl::Status EngineRounds::TakeInputs(std::string_view array, const Drafts& drafts,
                                      uint32_t num_drafts) {
  DraftPlace place = {.array = array, .max_draft = segment_.limits().max_draft, .bound = bound_};
  for (uint32_t i = 0; i < num_drafts; ++i) {
    place.index = i;
    const specd_draft& draft = drafts[i];
    if (absl::Status s = CheckDraft(place, draft); !s.ok()) return s;
    inputs_[i] = InputOf(draft);
  }
  return AwaitDaemon();
}

absl::Status EngineRounds::AwaitDaemon() {
  // Poll notices a daemon that died without a word. Asking the socket here would cost a system call
  // per round.
  if (channel_.daemon_state() == DaemonState::kRunning) return absl::OkStatus();
  return AwaitDaemonAfter(WhyNoCompletion());
}

absl::Status EngineRounds::AwaitDaemonAfter(const absl::Status& why) {
  return MayPass(why) ? reattachment_->Await(&channel_) : why;
}

absl::Status EngineRounds::TakeDrafts(const specd_draft* drafts, uint32_t num_drafts) {
  const SessionLimits& limits = segment_.limits();
  if (num_drafts == 0 || num_drafts > limits.max_batch) {
    return Invalid("num_drafts",
                   fmt::format("num_drafts = {} sequences is outside 1 .. {} (max_batch of "
                               "specd_open)",
                               num_drafts, limits.max_batch));
  }
  InputArray<specd_draft> array;
  if (absl::Status s = InputArray<specd_draft>::Check("drafts", drafts, num_drafts, &array);
      !s.ok()) {
    return s;
  }
  return TakeInputs("drafts", array, num_drafts);
}

absl::Status EngineRounds::TakeBatch(const specd_batch& batch, RoundSize* size) {
  BatchDrafts drafts;
  if (absl::Status s = BatchDrafts::Check(batch, segment_.limits(), row_numbers_, &drafts);
      !s.ok()) {
    return s;
  }
  *size = drafts.size();
  return TakeInputs("batch", drafts, batch.num_sequences);
}

absl::StatusOr<int> EngineRounds::CodeOf(PushResult pushed) const {
  switch (pushed) {
    case PushResult::kOk:
      return SPECD_OK;
    case PushResult::kFull:
      return SPECD_FULL;
    case PushResult::kBroken:
      break;
  }
  return WhyNoCompletion();
}

absl::Status EngineRounds::CheckKind(bool staged) const {
  if (!channel_.awaits_answers() || staged == wait_.are_staged()) return absl::OkStatus();
  return MakeError(SPECD_ERROR_STATE, "drafts",
                   staged ? "rounds of specd_submit are in flight; poll them before the first "
                            "round is staged"
                          : "staged rounds are in flight; poll them before a round is submitted");
}

absl::StatusOr<int> EngineRounds::Submit(uint64_t round_id, const specd_draft* drafts,
                                         uint32_t num_drafts) {
  if (absl::Status status = TakeDrafts(drafts, num_drafts); !status.ok()) return status;
  return SubmitInputs(round_id, num_drafts);
}

absl::StatusOr<int> EngineRounds::SubmitBatch(uint64_t round_id, const specd_batch& batch) {
  RoundSize size;
  if (absl::Status status = TakeBatch(batch, &size); !status.ok()) return status;
  return SubmitInputs(round_id, size.num_sequences);
}

absl::StatusOr<int> EngineRounds::SubmitInputs(uint64_t round_id, uint32_t num_inputs) {
  if (absl::Status status = CheckKind(false); !status.ok()) return status;
  if (absl::Status status = CheckBeside(false); !status.ok()) return status;
  wait_.SetStaged(false);
  return CodeOf(channel_.Submit(round_id, {inputs_.data(), num_inputs},
                                static_cast<uint64_t>(Clock::Real()->NowNs())));
}

absl::StatusOr<int> EngineRounds::VerifyBatch(uint64_t round_id, const specd_batch& batch,
                                              specd_batch_results* results, int timeout_ms,
                                              bool* device_failed) {
  if (absl::Status status = CheckPollTimeout(timeout_ms); !status.ok()) return status;
  if (channel_.awaits_answers()) {
    return MakeError(SPECD_ERROR_STATE, "batch",
                     fmt::format("{} rounds are in flight; poll for their completions first",
                                 channel_.rounds_in_flight()));
  }
  RoundSize size;
  if (absl::Status status = TakeBatch(batch, &size); !status.ok()) return status;
  if (absl::Status status = CheckRoom(*results, size, segment_.limits()); !status.ok()) {
    return status;
  }
  const absl::StatusOr<int> submitted = SubmitInputs(round_id, size.num_sequences);
  if (!submitted.ok() || *submitted != SPECD_OK) return submitted;
  return PollBatch(results, timeout_ms, device_failed);
}

absl::StatusOr<int> EngineRounds::MarkDrafts(void* cuda_stream) {
  if (const PushResult room = channel_.CheckRoom(); room != PushResult::kOk) return CodeOf(room);
  const uint64_t number = channel_.next_number();
  if (link_.is_embedded()) {
    absl::Status status = link_.MarkDrafts(cuda_stream, number);
    if (!status.ok()) return status;
    return SPECD_OK;
  }
  if (reattachment_ != nullptr) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "cuda_stream",
                     "cuda_stream: another daemon cannot be told that draft tokens are marked; "
                     "open the engine with reconnect_ms = 0, or submit the round once they are "
                     "written");
  }
  if (absl::Status status = streams_.CheckMode(); !status.ok()) return status;
  const absl::StatusOr<bool> is_marked = streams_.MarkDrafts({cuda_stream}, number);
  if (!is_marked.ok()) return is_marked.status();
  return *is_marked ? SPECD_OK : SPECD_FULL;
}

absl::Status EngineRounds::CheckBeside(bool on_stream) const {
  if (reattachment_ == nullptr || !channel_.awaits_answers() ||
      channel_.awaits_stream_answer() == on_stream) {
    return absl::OkStatus();
  }
  return MakeError(SPECD_ERROR_STATE, "cuda_stream",
                   on_stream ? "rounds that are on no CUDA stream are in flight; with reconnect_ms "
                               "poll for their completions first"
                             : "rounds on CUDA streams are in flight; with reconnect_ms poll for "
                               "their completions first");
}

bool EngineRounds::MustPollFirst() const {
  return reattachment_ != nullptr && channel_.awaits_stream_answer() &&
         (channel_.daemon_is_gone() || channel_.daemon_state() != DaemonState::kRunning);
}

absl::StatusOr<int> EngineRounds::SubmitOnStream(uint64_t round_id, const specd_draft* drafts,
                                                 uint32_t num_drafts, void* cuda_stream) {
  if (absl::Status status = streams_.CheckMode(); !status.ok()) return status;
  if (MustPollFirst()) return SPECD_FULL;
  if (absl::Status status = TakeDrafts(drafts, num_drafts); !status.ok()) return status;
  return SubmitInputsOnStream(round_id, num_drafts, cuda_stream);
}

absl::StatusOr<int> EngineRounds::SubmitBatchOnStream(uint64_t round_id, const specd_batch& batch,
                                                      void* cuda_stream) {
  if (absl::Status status = streams_.CheckMode(); !status.ok()) return status;
  if (MustPollFirst()) return SPECD_FULL;
  RoundSize size;
  if (absl::Status status = TakeBatch(batch, &size); !status.ok()) return status;
  return SubmitInputsOnStream(round_id, size.num_sequences, cuda_stream);
}

absl::StatusOr<int> EngineRounds::SubmitInputsOnStream(uint64_t round_id, uint32_t num_inputs,
                                                       void* cuda_stream) {
  if (absl::Status status = CheckBeside(true); !status.ok()) return status;
  // Rounds that were aborted for a daemon that is gone have been answered here.
  if (reattachment_ != nullptr && channel_.daemon_is_gone()) {
    const absl::Status status = AwaitDaemonAfter(WhyNoCompletion());
    if (!status.ok()) return status;
  }
  if (const PushResult room = channel_.CheckRoom(); room != PushResult::kOk) return CodeOf(room);
  const GpuStream stream{cuda_stream};
  const uint64_t number = channel_.next_number();
  bool is_free = false;
  if (absl::Status s = streams_.Check(stream, number, &is_free); !s.ok()) return s;
  if (!is_free) return SPECD_FULL;
  channel_.ArmWords();
  if (absl::Status s = streams_.Enqueue(stream, number); !s.ok()) return s;
  // The CUDA stream has work of the round. CheckRoom found room, so this cannot fail.
  return CodeOf(channel_.SubmitOnStream(round_id, {inputs_.data(), num_inputs},
                                        static_cast<uint64_t>(Clock::Real()->NowNs())));
}

// A staged round is taken at once: the engine may launch its CUDA graph when this function returns.
absl::StatusOr<int> EngineRounds::StageRound(uint64_t round_id, const specd_draft* drafts,
                                             uint32_t num_drafts) {
  if (absl::Status status = link_.CheckStaging(); !status.ok()) return status;
  if (absl::Status status = TakeDrafts(drafts, num_drafts); !status.ok()) return status;
  if (absl::Status status = CheckKind(true); !status.ok()) return status;
  if (channel_.rounds_in_flight() >= kStagedRoundsMax) return SPECD_FULL;
  const PushResult pushed = channel_.SubmitStaged(round_id, {inputs_.data(), num_drafts},
                                                  static_cast<uint64_t>(Clock::Real()->NowNs()));
  if (pushed != PushResult::kOk) return CodeOf(pushed);
  wait_.SetStaged(true);
  link_.StepPiece();
  return SPECD_OK;
}

absl::Status EngineRounds::EnqueueStaged(uint32_t num_sequences, void* cuda_stream) {
  return link_.EnqueueStaged(cuda_stream, num_sequences);
}

absl::StatusOr<bool> EngineRounds::Await(int timeout_ms, CompletionView* view) {
  const int64_t begin_ns = Clock::Real()->NowNs();
  for (int left_ms = timeout_ms;;) {
    const absl::StatusOr<bool> any = wait_.Take(left_ms, view);
    if (any.ok() && *any && reattachment_ != nullptr) {
      reattachment_->Took(*view);
      // The daemon may have been gone before anything waited for it.
      if (WasAborted(*view) && link_.HungUp()) channel_.SetDaemonGone();
    }
    if (any.ok() || !MayPass(any.status())) return any;
    const absl::StatusOr<bool> attached = reattachment_->Try(&channel_);
    if (!attached.ok()) return attached;
    if (timeout_ms >= 0) {
      const int64_t waited_ms = (Clock::Real()->NowNs() - begin_ns) / 1'000'000;
      left_ms = static_cast<int>(std::max<int64_t>(0, timeout_ms - waited_ms));
    }
    if (*attached) continue;
    if (left_ms == 0) return false;
    absl::SleepFor(absl::Milliseconds(left_ms < 0 ? kLookMs : std::min(left_ms, kLookMs)));
  }
}

absl::StatusOr<int> EngineRounds::Poll(specd_completion* completion, int timeout_ms) {
  if (absl::Status s = CheckElementSize<specd_completion>("completion", 0, completion->struct_size);
      !s.ok()) {
    return s;
  }
  if (absl::Status s =
          CheckElementSize<specd_result>("completion", 0, completion->result_size, "result_size");
      !s.ok()) {
    return s;
  }
  if (absl::Status s = CheckPollTimeout(timeout_ms); !s.ok()) return s;
  CompletionView view;
  const absl::StatusOr<bool> any = AwaitRound(timeout_ms, &view);
  if (!any.ok()) return any.status();
  if (!*any) return SPECD_EMPTY;
  results_.Write(view, completion);
  return SPECD_OK;
}

absl::StatusOr<int> EngineRounds::PollBatch(specd_batch_results* results, int timeout_ms,
                                            bool* device_failed) {
  if (absl::Status s = CheckPollTimeout(timeout_ms); !s.ok()) return s;
  if (absl::Status s = CheckRoom(*results, channel_.NextRound(), segment_.limits()); !s.ok()) {
    return s;
  }
  CompletionView view;
  const absl::StatusOr<bool> any = AwaitRound(timeout_ms, &view);
  if (!any.ok()) return any.status();
  if (!*any) return SPECD_EMPTY;
  if (absl::Status s = WriteResults(view, results); !s.ok()) return s;
  *device_failed = std::any_of(view.results.begin(), view.results.end(), [](const auto& result) {
    return result.status == RoundStatus::kDeviceError;
  });
  return SPECD_OK;
}

absl::StatusOr<bool> EngineRounds::AwaitRound(int timeout_ms, CompletionView* view) {
  absl::StatusOr<bool> any = Await(timeout_ms, view);
  // This is the late answer to a call that was given up. The call had been submitted alone, so
  // nothing follows it.
  if (any.ok() && *any && view->kind != SubmissionKind::kRound) any = false;
  return any;
}

}  // namespace specd
