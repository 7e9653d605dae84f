#include "daemon/session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

static_assert(kHandleGenerationMax == kStateGenerationMask,
              "a handle and its state word must have room for the same generations");

static_assert(SessionLimits::kScoresMax == 1 + kLogprobsMax + kLogprobTokenIdsMax);

// Events that may wait for the publisher before the verify thread stops taking rounds: at 16
// sequences per round about a quarter of a second of rounds at 1 kHz.
constexpr size_t kEventQueueSize = 4096;

// A record that reads well and is refused all the same was refused by the verifier.
uint32_t DetailOf(const RoundResult& result, RecordFault fault) {
  if (result.status != RoundStatus::kInvalid) return SPECD_DETAIL_NONE;
  return fault == RecordFault::kNone ? static_cast<uint32_t>(result.fault.detail)
                                     : static_cast<uint32_t>(fault);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Create(const SessionOptions& options,
                                                         std::unique_ptr<Backend> backend) {
  if (absl::Status status = ValidateLimits(options.limits); !status.ok()) return status;
  if (absl::Status status = CheckVocabSize(*options.profile, options.limits.vocab_size);
      !status.ok()) {
    return MakeError(SPECD_ERROR_VOCABULARY, "vocab_size", std::string(status.message()));
  }
  VerifierOptions verifier_options;
  verifier_options.limits = {static_cast<int32_t>(options.limits.vocab_size),
                             static_cast<int32_t>(options.limits.max_batch),
                             static_cast<int32_t>(options.limits.max_draft), options.threads};
  verifier_options.max_sequences = options.limits.max_sequences;
  verifier_options.eos_token_ids = options.profile->eos_token_ids;
  absl::StatusOr<std::unique_ptr<Verifier>> verifier =
      Verifier::Create(verifier_options, std::move(backend));
  if (!verifier.ok()) return verifier.status();
  absl::StatusOr<Segment> segment = Segment::Create(options.limits, options.identity);
  if (!segment.ok()) return segment.status();
  return std::shared_ptr<Session>(new Session(options, *std::move(segment), *std::move(verifier)));
}

Session::Session(const SessionOptions& options, Segment segment, std::unique_ptr<Verifier> verifier)
    : options_(options),
      segment_(std::move(segment)),
      channel_(&segment_),
      regions_(options.importer),
      verifier_(std::move(verifier)),
      streams_(options.limits.max_sequences),
      submission_(options.limits),
      inputs_(options.limits.max_batch),
      results_(options.limits.max_batch),
      answers_(options.limits.max_batch),
      draft_inputs_(options.limits.max_batch),
      draft_results_(options.limits.max_batch),
      children_(options.limits.max_batch),
      score_inputs_(options.limits.max_batch),
      score_results_(options.limits.max_batch) {
  if (options_.publish_events) {
    events_ = std::make_unique<StreamEventQueue>(
        std::max(kEventQueueSize, size_t{4} * options.limits.max_batch) +
        options.limits.max_sequences);
  }
  if (options_.may_stage) channel_.AllowStaging();
  channel_.SetState(DaemonState::kRunning);
}

Session::~Session() {
  EndAll();
  StreamEvent event;
  while (PopEvent(&event)) delete event.info;
}

// ---- control thread

bool Session::EndAll() {
  const bool had_run = End();
  // Without the session's lock, because the driver takes its time. No round is taken any more, and
  // none reads: End has waited for the lock, which is held for the whole of a round.
  regions_.device().Close();
  return had_run;
}

bool Session::End() {
  MutexLock lock(&mutex_);
  if (ended()) return false;
  verifier_->sequences().ForEachOpen([this](Sequence& sequence) {
    mutex_.AssertHeld();
    FinishFromOutside(sequence.handle, FinishReason::kAbort, sequence.kept_tokens);
    options_.names->Release(streams_[SlotOf(sequence.handle)].request_id);
  });
  channel_.Abandon();
  channel_.SetState(DaemonState::kStopped);
  // Pairs with the acquire in ended(); keeps the ends that were pushed above before the end itself.
  ended_.store(true, std::memory_order_release);
  return true;
}

// ---- verify thread

bool Session::Step() {
  MutexLock lock(&mutex_);
  // Room for this round's tokens, and always an end for every sequence: no event is ever dropped,
  // and a publisher that is behind slows the engine instead of losing its text.
  if (ended() || (events_ != nullptr &&
                  EventRoom() < options_.limits.max_batch + options_.limits.max_sequences)) {
    return false;
  }
  if (!channel_.Take(&submission_, static_cast<uint64_t>(options_.clock->NowNs()))) {
    return CollectRound();
  }
  if (submission_.staged()) {
    StageRound();
  } else if (submission_.kind() == SubmissionKind::kRound) {
    VerifyRound();
    AnswerRound(submission_);
  } else {
    AnswerCall();
  }
  return true;
}

std::span<const RoundInput> Session::InputsOf(const SubmissionCopy& submission) {
  const std::span<const DraftRecordView> records = submission.records();
  for (size_t i = 0; i < records.size(); ++i) {
    const std::span<const InjectedCoin> coins = CoinsOf(records[i].sequence);
    inputs_[i] = {records[i].sequence,
                  records[i].chain,
                  records[i].mask_rows,
                  records[i].discard,
                  records[i].fault != RecordFault::kNone,
                  coins.data(),
                  static_cast<int32_t>(coins.size()),
                  records[i].drafts_by_slot};
  }
  return {inputs_.data(), records.size()};
}

void Session::VerifyRound() {
  const std::span<const DraftRecordView> records = submission_.records();
  if (channel_.IsAborted(submission_)) {
    // Its stream was released long ago; the rows are somebody else's by now.
    for (size_t i = 0; i < records.size(); ++i) {
      results_[i] = {};
      results_[i].sequence = records[i].sequence;
      results_[i].status = RoundStatus::kAborted;
    }
    return;
  }
  const std::span<RoundResult> results(results_.data(), records.size());
  if (!submission_.on_stream()) return verifier_->VerifyRound(InputsOf(submission_), results);
  // Until the claim the engine's stream may be released, and its rows and next tokens written anew;
  // behind it the stream waits for the answer.
  verifier_->VerifyRound(InputsOf(submission_), results, [this] {
    mutex_.AssertHeld();
    return channel_.Claim(submission_);
  });
}

std::string Session::WhyDeviceFailed() {
  MutexLock lock(&mutex_);
  return std::string(verifier_->failure().message());
}

void Session::AnswerRound(const SubmissionCopy& submission) {
  const size_t count = submission.records().size();
  bool failed = submission.malformed();
  for (size_t i = 0; i < count; ++i) {
    const RoundResult& result = results_[i];
    failed = failed || result.status == RoundStatus::kDeviceError;
    answers_[i] = {result.sequence,
                   static_cast<uint32_t>(result.status),
                   static_cast<uint32_t>(result.finish_reason),
                   result.num_accepted,
                   result.num_kept,
                   result.total_kept,
                   result.stop_token,
                   result.tokens,
                   DetailOf(result, submission.records()[i].fault),
                   static_cast<uint32_t>(result.scores_per_token),
                   result.scores,
                   result.cumulative_logprob};
    NoteFailure(result.status);
    if (result.status != RoundStatus::kDeviceError && result.finish_reason != FinishReason::kNone) {
      // Before the completion, so that whoever has read it finds the state in agreement.
      const Sequence* sequence = verifier_->Find(result.sequence);
      if (sequence != nullptr) WriteState(*sequence);  // a staged round may outlive it
    }
  }
  // Not claimed yet are rounds with nothing to commit, and those that no stream waits for, which
  // nobody may call off.
  if (failed) {
    channel_.Withdraw(submission);  // what is written behind the claim may fail
  } else if (!channel_.Claim(submission) && submission.on_stream()) {
    for (size_t i = 0; i < count; ++i) {
      answers_[i] = {};
      answers_[i].sequence = results_[i].sequence;
      answers_[i].status = SPECD_STATUS_ABORTED;
    }
  }
  const int64_t done_ns = options_.clock->NowNs();
  channel_.Complete(submission, std::span<const SequenceResult>(answers_.data(), count),
                    static_cast<uint64_t>(done_ns));
  if (events_ != nullptr) PublishRound(count, done_ns);
}

void Session::PublishRound(size_t num_results, int64_t time_ns) {
  for (size_t i = 0; i < num_results; ++i) {
    const RoundResult& result = results_[i];
    if (result.status != RoundStatus::kOk && result.status != RoundStatus::kBadDistribution) {
      continue;
    }
    const Sequence& sequence = *verifier_->Find(result.sequence);
    if (result.num_kept > 0) {
      StreamEvent event = EventFor(sequence, StreamEventKind::kTokens);
      event.time_ns = time_ns;
      event.token_offset = result.total_kept - result.num_kept;
      event.num_tokens = result.num_kept;
      event.num_accepted = result.num_accepted;
      std::copy_n(result.tokens, result.num_kept, event.tokens.begin());
      event.num_logprobs = sequence.logprob_sum.enabled() ? result.num_kept : 0;
      for (uint32_t j = 0; j < event.num_logprobs; ++j) {
        event.logprobs[j] = result.scores[j * static_cast<uint32_t>(result.scores_per_token)].value;
      }
      PushEvent(event);
    }
    if (result.finish_reason != FinishReason::kNone) {
      PushEvent(EventFor(sequence, StreamEventKind::kEnd));
    }
  }
}

// ---- publisher thread

bool Session::PopEvent(StreamEvent* event) { return events_ != nullptr && events_->pop(*event); }

void Session::FinishFromText(SequenceHandle sequence, FinishReason reason, uint32_t kept_tokens) {
  MutexLock lock(&mutex_);
  if (!ended()) FinishFromOutside(sequence, reason, kept_tokens);
}

VerifierCounters Session::counters() {
  MutexLock lock(&mutex_);
  return verifier_->counters();
}

// ---- shared

void Session::FinishFromOutside(SequenceHandle handle, FinishReason reason, uint32_t kept_tokens) {
  const Sequence* before = verifier_->Find(handle);
  const bool had_ended = before == nullptr || before->finish_reason != FinishReason::kNone;
  const Sequence* sequence = verifier_->Finish(handle, reason, kept_tokens);
  if (sequence == nullptr) return;
  WriteState(*sequence);
  // A stream ends once: where a stop string moves an end that was announced, it was the text side
  // itself that moved it.
  if (had_ended || events_ == nullptr) return;
  PushEvent(EventFor(*sequence, StreamEventKind::kEnd));
}

StreamEvent Session::EventFor(const Sequence& sequence, StreamEventKind kind) {
  StreamEvent event{};
  event.kind = kind;
  event.sequence = sequence.handle;
  event.stream = streams_[SlotOf(sequence.handle)].id;
  event.time_ns = options_.clock->NowNs();
  event.token_offset = sequence.kept_tokens;
  event.finish_reason = sequence.finish_reason;
  event.stop_token = sequence.stop_token;
  event.cumulative_logprob = sequence.logprob_sum.value();
  return event;
}

void Session::WriteState(const Sequence& sequence) {
  channel_.WriteState(SlotOf(sequence.handle),
                      {GenerationOf(sequence.handle), static_cast<uint32_t>(sequence.finish_reason),
                       sequence.kept_tokens, sequence.end_moved},
                      sequence.logprob_sum.value());
}

size_t Session::EventRoom() { return events_->write_available(); }

void Session::PushEvent(const StreamEvent& event) {
  // The reserve kept by Step and OpenSequence makes this impossible to fail.
  SPECD_CHECK(events_->push(event));
}

}  // namespace specd
