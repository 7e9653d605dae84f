#include "daemon/client/engine_rounds.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "daemon/base/clock.h"
#include "daemon/client/struct_array.h"
#include "ipc/base/error.h"
#include "ipc/segment/round_words.h"
#include "kernels/backend.h"

namespace specd {
namespace {

// Long compared with a round, short compared with the delays that a user notices.
constexpr int kStreamTimeoutMs = 250;

// The pause between two looks at the daemon while an engine waits. The death of the daemon is
// noticed within this time. A look is one poll of the socket and costs nothing at this rate.
constexpr int kLookMs = 20;

// A staged round is spun for about as long as a short forward takes. Then come pauses that grow
// with the wait.
constexpr int64_t kGraphSpinNs = 1'000'000;
constexpr int64_t kPauseMinNs = 50'000;
constexpr int64_t kPauseMaxNs = 1'000'000;

absl::Status CheckPollTimeout(int timeout_ms) {
  if (timeout_ms >= -1) return absl::OkStatus();
  return Invalid("timeout_ms", fmt::format("timeout_ms = {} is less than -1", timeout_ms));
}

bool WasAborted(const CompletionView& view) {
  return !view.results.empty() && view.results[0].status == RoundStatus::kAborted;
}

// Spinning takes a core from the engine or the daemon, unless there is one to spare.
int64_t MaxSpinNs(int32_t spin_us) {
  constexpr int64_t kMaxSpinNs = 2'000'000;
  if (spin_us >= 0) return int64_t{spin_us} * 1000;
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return 0;
  return CPU_COUNT(&usable) > 2 ? kMaxSpinNs : 0;
}

}  // namespace

EngineRounds::EngineRounds(EngineLink* link, Segment* segment, uint32_t stream_timeout_ms,
                           int32_t spin_us)
    : link_(*link),
      segment_(*segment),
      stream_timeout_ms_(stream_timeout_ms == 0 ? kStreamTimeoutMs
                                                : static_cast<int>(stream_timeout_ms)),
      channel_(segment),
      spin_(MaxSpinNs(spin_us)),
      inputs_(segment->limits().max_batch),
      row_numbers_(segment->limits()) {}

bool EngineRounds::CloseStreams(int64_t timeout_ns) {
  for (Words& left : left_) {
    if (!left.streams->Close(timeout_ns)) KeepForever(std::move(left.segment));
  }
  left_.clear();
  if (streams_ == nullptr) return true;
  const bool passed = streams_->Close(timeout_ns);
  last_on_stream_ = 0;
  streams_.reset();
  if (words_ == nullptr) return passed;
  if (!passed) KeepForever(std::move(words_));
  words_.reset();
  return true;
}

void EngineRounds::DropUnusedStreams() {
  if (!streams_->is_unused()) return;
  (void)streams_->Close(0);
  streams_.reset();
  words_.reset();
}

void EngineRounds::LetStreamsGo() {
  if (streams_ == nullptr) return;
  streams_->watch().LetGo();
  left_.push_back({std::move(words_), std::move(streams_)});
}

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
  if (!channel_.awaits_answers() || staged == in_flight_staged_) return absl::OkStatus();
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
  in_flight_staged_ = false;
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

absl::Status EngineRounds::OpenStreams(GpuStream stream) {
  if (streams_ != nullptr) return absl::OkStatus();
  if (reattachment_ != nullptr) words_ = std::make_unique<Segment>(segment_.Share());
  Segment* const segment = words_ != nullptr ? words_.get() : &segment_;
  absl::StatusOr<std::unique_ptr<CudaStreams>> opened = CudaStreams::Open(
      {segment, Clock::Real(), int64_t{stream_timeout_ms_} * 1'000'000, link_.hangup_fd()}, stream);
  if (opened.ok()) streams_ = *std::move(opened);
  return opened.status();
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
  if (absl::Status status = CheckStreams(); !status.ok()) return status;
  const GpuStream stream{cuda_stream};
  if (absl::Status status = OpenStreams(stream); !status.ok()) return status;
  const absl::StatusOr<bool> is_marked = streams_->MarkDrafts(stream, number);
  if (!is_marked.ok()) DropUnusedStreams();
  if (!is_marked.ok()) return is_marked.status();
  return *is_marked ? SPECD_OK : SPECD_FULL;
}

absl::Status EngineRounds::CheckStreams() const {
  if (!link_.is_embedded()) return absl::OkStatus();
  return MakeError(
      SPECD_ERROR_UNSUPPORTED, "cuda_stream",
      "cuda_stream: embedded mode verifies inside specd_poll, which no CUDA stream can wait for; "
      "synchronize the CUDA stream and use specd_submit or specd_submit_batch, or attach to a "
      "daemon");
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
  if (absl::Status status = CheckStreams(); !status.ok()) return status;
  if (MustPollFirst()) return SPECD_FULL;
  if (absl::Status status = TakeDrafts(drafts, num_drafts); !status.ok()) return status;
  return SubmitInputsOnStream(round_id, num_drafts, cuda_stream);
}

absl::StatusOr<int> EngineRounds::SubmitBatchOnStream(uint64_t round_id, const specd_batch& batch,
                                                      void* cuda_stream) {
  if (absl::Status status = CheckStreams(); !status.ok()) return status;
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
  if (absl::Status status = OpenStreams(stream); !status.ok()) return status;
  const uint64_t number = channel_.next_number();
  bool is_free = false;
  absl::Status status = streams_->Check(stream, number, &is_free);
  if (status.ok()) {
    if (!is_free) return SPECD_FULL;
    channel_.ArmWords();
    status = streams_->Enqueue(stream, number);
  }
  if (!status.ok()) {
    // If nothing was enqueued on this device, the next CUDA stream may be of another.
    DropUnusedStreams();
    return status;
  }
  last_on_stream_ = number;
  last_streams_ = streams_.get();
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
  in_flight_staged_ = true;
  link_.StepPiece();
  return SPECD_OK;
}

absl::Status EngineRounds::EnqueueStaged(uint32_t num_sequences, void* cuda_stream) {
  return link_.EnqueueStaged(cuda_stream, num_sequences);
}

absl::Status EngineRounds::GetRoundEnd(specd_round_end* end) const {
  if (last_on_stream_ == 0) {
    return MakeError(SPECD_ERROR_STATE, "end",
                     "no round was submitted with specd_submit_on_stream or "
                     "specd_submit_batch_on_stream");
  }
  *end = {.device_address = last_streams_->StatusAddress(last_on_stream_),
          .answered = PackRoundEnd(last_on_stream_, RoundEnd::kAnswered)};
  return absl::OkStatus();
}

absl::Status EngineRounds::WhyNoCompletion() const {
  if (channel_.fault() != ChannelFault::kNone) {
    return MakeError(
        SPECD_ERROR_INTERNAL, "",
        fmt::format("the shared memory of the session is damaged ({}); close and attach "
                    "again",
                    ChannelFaultName(channel_.fault())));
  }
  const DaemonState state = channel_.daemon_state();
  if (link_.PeerGone() && (state == DaemonState::kRunning || !channel_.daemon_was_drained())) {
    return MakeError(SPECD_ERROR_DISCONNECTED, "",
                     "the daemon is gone; rounds in flight will not complete. Start it and attach "
                     "again");
  }
  return MakeError(SPECD_ERROR_SHUTDOWN, "",
                   "the daemon is shutting down and takes no new rounds; finish and close");
}

bool EngineRounds::StepForCompletion(int timeout_ms) {
  const int64_t begin_ns = Clock::Real()->NowNs();
  while (!channel_.HasCompletion()) {
    const bool has_worked = link_.StepPiece();
    // The verifier runs in this thread; once it has no work, waiting would bring nothing. A CUDA
    // graph is the exception: the device does its work, and rings no bell.
    if (!has_worked && (!channel_.in_flight() || !in_flight_staged_)) return false;
    const int64_t waited_ns = Clock::Real()->NowNs() - begin_ns;
    // The round stays between two pieces, and the next poll goes on with it.
    if (timeout_ms >= 0 && waited_ns >= int64_t{timeout_ms} * 1'000'000) {
      return channel_.HasCompletion();
    }
    if (has_worked) continue;
    if (waited_ns < kGraphSpinNs) {
      sched_yield();
    } else {
      absl::SleepFor(absl::Nanoseconds(std::clamp(waited_ns / 8, kPauseMinNs, kPauseMaxNs)));
    }
  }
  return true;
}

bool EngineRounds::WaitForCompletion(int timeout_ms) {
  if (link_.is_embedded()) return StepForCompletion(timeout_ms);
  if (channel_.HasCompletion()) {
    waited_ns_ = 0;
    return true;
  }
  const int64_t begin_ns = Clock::Real()->NowNs();
  const bool has_come = SleepForCompletion(timeout_ms, spin_.NextNs() - waited_ns_);
  waited_ns_ += Clock::Real()->NowNs() - begin_ns;
  if (has_come) spin_.Took(std::exchange(waited_ns_, 0));
  return has_come;
}

bool EngineRounds::SleepForCompletion(int timeout_ms, int64_t spin_ns) {
  int64_t left_ms = timeout_ms < 0 ? INT64_MAX : timeout_ms;
  while (!channel_.HasCompletion()) {
    if (left_ms == 0 || !channel_.in_flight() || link_.PeerGone()) return false;
    // Only ring entries are still missing, and a stopped daemon gives none back.
    if (timeout_ms < 0 && !channel_.awaits_answers()) return false;
    const int64_t slice_ms = std::min<int64_t>(left_ms, kLookMs);
    channel_.WaitCompletion({spin_ns, absl::Milliseconds(slice_ms)});
    spin_ns = 0;  // only the first slice of a wait looks
    left_ms -= timeout_ms < 0 ? 0 : slice_ms;
    if (channel_.daemon_state() == DaemonState::kStopped && !channel_.HasCompletion()) return false;
  }
  return true;
}

absl::StatusOr<bool> EngineRounds::Await(int timeout_ms, CompletionView* view) {
  const int64_t begin_ns = Clock::Real()->NowNs();
  for (int left_ms = timeout_ms;;) {
    const absl::StatusOr<bool> any = AwaitHere(left_ms, view);
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

absl::StatusOr<bool> EngineRounds::AwaitHere(int timeout_ms, CompletionView* view) {
  const bool waited_in_vain = !WaitForCompletion(timeout_ms);
  // This question comes before the last look into the ring. Answers that a daemon gave before it
  // ended are still there.
  const bool over =
      waited_in_vain && (channel_.daemon_state() == DaemonState::kStopped || link_.PeerGone());
  // If only the control channel timed out, the daemon may still answer.
  if (over && (channel_.daemon_state() == DaemonState::kStopped || link_.HungUp())) {
    channel_.SetDaemonGone();
  }
  if (channel_.Poll(view)) {
    if (!view->malformed) return true;
    return MakeError(SPECD_ERROR_INTERNAL, "",
                     view->kind == SubmissionKind::kRound ? "the daemon could not read the round"
                                                          : "the daemon could not read the call");
  }
  if (over || channel_.fault() != ChannelFault::kNone) return WhyNoCompletion();
  return false;
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
