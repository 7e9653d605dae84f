#include "ipc/segment/daemon_channel.h"

#include <bit>

#include "ipc/base/peer_memory.h"
#include "kernels/core/check.h"

namespace specd {

DaemonChannel::DaemonChannel(Segment* segment)
    : segment_(segment),
      submissions_({segment->submission_entries(), &segment->page()->daemon.submissions_consumed,
                    segment->limits().ring_depth}),
      completions_({segment->completion_entries(), &segment->page()->engine.completions_consumed,
                    segment->limits().ring_depth}) {}

bool DaemonChannel::Take(SubmissionCopy* out, uint64_t taken_ns) {
  SPECD_CHECK(out->records_.size() == segment_->limits().max_batch);
  if (fault_ != ChannelFault::kNone) return false;
  const RingState state = submissions_.State();
  if (state == RingState::kEmpty) return false;
  if (state == RingState::kCorrupt) {
    fault_ = ChannelFault::kSequence;
    return false;
  }
  if (!HasRows()) return false;
  const RingState room = completions_.State(reserved_);
  if (room == RingState::kFull) return false;
  if (room == RingState::kCorrupt) {
    fault_ = ChannelFault::kConsumed;
    return false;
  }
  out->position_ = submissions_.position();
  out->taken_ns_ = taken_ns;
  out->staged_ = false;
  out->on_stream_ = false;
  out->malformed_ = !CopyEntry(out);
  if (out->malformed_) out->num_records_ = 0;
  submissions_.Release();
  ++reserved_;
  return true;
}

bool DaemonChannel::Peek(SubmissionCopy* out) const {
  SPECD_CHECK(out->records_.size() == segment_->limits().max_batch);
  if (!IsHeld()) return false;
  out->position_ = submissions_.position();
  out->malformed_ = !CopyEntry(out);
  if (out->malformed_) out->num_records_ = 0;
  return !out->malformed_;
}

// Tells whether the rows of the oldest submission are ready. If the engine changes the ring entry
// meanwhile, it gets only its own rows too early.
bool DaemonChannel::HasRows() const {
  if ((ReadOnce(submissions_.Entry()->flags) & kSubmissionOnStream) == 0) return true;
  const uint64_t number = submissions_.position() + 1;
  return AreRowsReady(*segment_->round_words(number), number);
}

// Copies ring entry and payload. False if the ring entry does not name records inside its area.
bool DaemonChannel::CopyEntry(SubmissionCopy* out) const {
  const SubmissionEntry* entry = submissions_.Entry();
  out->round_id_ = ReadOnce(entry->round_id);
  out->submit_ns_ = ReadOnce(entry->submit_ns);
  const uint64_t payload_offset = ReadOnce(entry->payload_offset);
  const uint64_t payload_bytes = ReadOnce(entry->payload_bytes);
  const uint32_t flags = ReadOnce(entry->flags);
  out->num_records_ = ReadOnce(entry->num_records);
  out->kind_ = ReadOnce(entry->kind);
  const bool is_round = out->kind_ == static_cast<uint32_t>(SubmissionKind::kRound);
  out->staged_ = is_round && allows_staging_ && flags == kSubmissionStaged;
  out->on_stream_ = is_round && flags == kSubmissionOnStream;
  if ((flags != 0 && !out->staged_ && !out->on_stream_) ||
      out->kind_ > static_cast<uint32_t>(SubmissionKind::kForcedTokens)) {
    return false;
  }
  return is_round ? CopyRound(payload_offset, payload_bytes, out)
                  : CopyCall(payload_offset, payload_bytes, out);
}

bool DaemonChannel::CopyRound(uint64_t payload_offset, uint64_t payload_bytes,
                              SubmissionCopy* out) const {
  const SegmentLayout& layout = segment_->layout();
  const uint32_t num_records = out->num_records_;
  if (num_records > segment_->limits().max_batch ||
      payload_bytes != uint64_t{num_records} * layout.draft_record_bytes) {
    return false;
  }
  if (payload_bytes > layout.draft_payload_bytes ||
      payload_offset > layout.draft_payload_bytes - payload_bytes ||
      payload_offset % kRecordAlignBytes != 0) {
    return false;
  }
  const char* from = segment_->at(layout.draft_payload_offset + payload_offset);
  char* record = out->payload_.data();
  for (uint32_t i = 0; i < num_records; ++i) {
    CopyDraft(layout, from, record);
    out->records_[i] = ReadDraft(layout, segment_->limits(), row_limits_, record);
    from += layout.draft_record_bytes;
    record += layout.draft_record_bytes;
  }
  return true;
}

void DaemonChannel::Complete(const SubmissionCopy& submission,
                             std::span<const SequenceResult> results, uint64_t done_ns) {
  const SessionLimits& limits = segment_->limits();
  const SegmentLayout& layout = segment_->layout();
  SPECD_CHECK(results.size() == submission.num_results());
  const uint64_t payload_offset =
      uint64_t{completions_.entry_index()} * limits.max_batch * layout.result_record_bytes;
  char* record = segment_->at(layout.result_payload_offset + payload_offset);
  for (const SequenceResult& result : results) {
    WriteResult(layout, limits, result, record);
    record += layout.result_record_bytes;
  }
  Publish(submission,
          {.offset = payload_offset,
           .bytes = static_cast<uint32_t>(results.size() * layout.result_record_bytes),
           .num_records = static_cast<uint32_t>(results.size()),
           .flags = submission.malformed_ ? kCompletionMalformed : 0},
          done_ns);
}

// The area bounds the counts; the code that uses the records judges their contents.
bool DaemonChannel::CopyCall(uint64_t payload_offset, uint64_t payload_bytes,
                             SubmissionCopy* out) const {
  const SegmentLayout& layout = segment_->layout();
  const auto kind = static_cast<SubmissionKind>(out->kind_);
  const uint32_t count_max =
      kind == SubmissionKind::kSetCoins ? kCallCoinsMax : segment_->limits().max_batch;
  if (payload_offset != 0 || out->num_records_ > count_max ||
      payload_bytes != CallBytes(layout, kind, out->num_records_)) {
    return false;
  }
  CopyOnce(out->payload_.data(), segment_->at(layout.call_request_offset), payload_bytes);
  for (uint32_t i = 0; i < out->num_records_; ++i) {
    if (kind == SubmissionKind::kSampleDraft) {
      out->draft_calls_[i] = ReadDraftCall(layout, out->payload_.data(), i);
    } else if (kind == SubmissionKind::kScore) {
      out->score_calls_[i] = ReadScoreCall(layout, out->payload_.data(), i);
    } else if (kind == SubmissionKind::kForcedTokens) {
      out->forced_calls_[i] = ReadForcedCall(layout, out->payload_.data(), i);
    }
  }
  return true;
}

void DaemonChannel::Complete(const SubmissionCopy& submission, std::span<const DraftResult> answers,
                             uint64_t done_ns) {
  SPECD_CHECK(submission.kind() == SubmissionKind::kSampleDraft);
  SPECD_CHECK(answers.size() == submission.num_results());
  char* to = segment_->at(segment_->layout().call_answer_offset);
  for (const DraftResult& answer : answers) {
    WriteAnswer(answer, to);
    to += kChildrenAnswerBytes;
  }
  Publish(submission,
          {.offset = 0,
           .bytes = static_cast<uint32_t>(answers.size() * kChildrenAnswerBytes),
           .num_records = static_cast<uint32_t>(answers.size()),
           .flags = 0},
          done_ns);
}

void DaemonChannel::Refuse(const SubmissionCopy& submission, const absl::Status& why,
                           uint64_t done_ns) {
  SPECD_CHECK(!why.ok() && submission.kind() != SubmissionKind::kRound);
  WriteRefusal(why, segment_->at(segment_->layout().call_answer_offset));
  Publish(
      submission,
      {.offset = 0, .bytes = sizeof(RefusalRecord), .num_records = 0, .flags = kCompletionRefused},
      done_ns);
}

void DaemonChannel::Publish(const SubmissionCopy& submission, const Payload& payload,
                            uint64_t done_ns) {
  SPECD_CHECK(reserved_ > 0 && submission.position_ == completions_.position());
  CompletionEntry* entry = completions_.Entry();
  entry->round_id = submission.round_id_;
  entry->submit_ns = submission.submit_ns_;
  entry->taken_ns = submission.taken_ns_;
  entry->done_ns = done_ns;
  entry->payload_offset = payload.offset;
  entry->payload_bytes = payload.bytes;
  entry->num_records = payload.num_records;
  entry->flags = payload.flags;
  entry->kind = submission.kind_;
  const uint64_t number = submission.position_ + 1;
  // A round that was claimed is not affected. This decides a call, or a round that could not be
  // read or run.
  Decide(segment_->round_words(number), number,
         submission.kind() == SubmissionKind::kRound || payload.flags != 0 ? RoundEnd::kFailed
                                                                           : RoundEnd::kAnswered);
  completions_.Publish();
  --reserved_;
  // After the completion, so that work released on the CUDA stream finds it. Before the bell: the
  // CUDA stream need not wait for the bell's system call.
  Release(segment_->round_words(number), number);
  Doorbell(&segment_->page()->completion_bell).Ring();
}

bool DaemonChannel::HasSubmission() {
  if (fault_ != ChannelFault::kNone) return false;
  const RingState state = submissions_.State();
  if (state == RingState::kEmpty || (state == RingState::kReady && !HasRows())) return false;
  return completions_.State(reserved_) != RingState::kFull;
}

uint32_t DaemonChannel::CountInFlight() const {
  const uint32_t depth = segment_->limits().ring_depth;
  uint32_t waiting = 0;
  while (waiting < depth && submissions_.State(waiting) == RingState::kReady) ++waiting;
  return reserved_ + waiting;
}

bool DaemonChannel::IsHeld() const {
  return fault_ == ChannelFault::kNone && submissions_.State() == RingState::kReady && !HasRows();
}

bool DaemonChannel::AreDraftsMarked() const {
  const uint64_t number = submissions_.position() + 1;
  return specd::AreDraftsMarked(*segment_->round_words(number), number);
}

bool DaemonChannel::Claim(const SubmissionCopy& submission) {
  const uint64_t number = submission.position_ + 1;
  return Decide(segment_->round_words(number), number, RoundEnd::kAnswered) == RoundEnd::kAnswered;
}

void DaemonChannel::Withdraw(const SubmissionCopy& submission) {
  const uint64_t number = submission.position_ + 1;
  specd::Withdraw(segment_->round_words(number), number);
}

bool DaemonChannel::IsAborted(const SubmissionCopy& submission) const {
  const uint64_t number = submission.position_ + 1;
  return specd::IsAborted(*segment_->round_words(number), number);
}

// The engine may have as many rounds in flight as there are ring entries, beginning with the next
// one to be answered. It may be about to submit some of them. This writes no status for those
// rounds: a kernel may still read there how an earlier round ended. A round that no status names
// was not answered.
void DaemonChannel::Abandon() {
  for (uint32_t i = 0; i < segment_->limits().ring_depth; ++i) {
    const uint64_t number = completions_.position() + 1 + i;
    const bool is_taken = number <= submissions_.position();
    const uint32_t ahead = is_taken ? 0 : number - 1 - submissions_.position();
    if (is_taken || submissions_.State(ahead) == RingState::kReady) {
      Decide(segment_->round_words(number), number, RoundEnd::kAborted);
    }
    Release(segment_->round_words(number), number);
  }
}

Doorbell DaemonChannel::submission_bell() const {
  return Doorbell(&segment_->page()->submission_bell);
}

void DaemonChannel::WriteState(uint32_t slot, const SequenceState& state,
                               double cumulative_logprob) {
  SPECD_CHECK(slot < segment_->limits().max_sequences);
  SequenceLine& line = segment_->sequence_table()[slot];
  line.cumulative_logprob[state.end_moved ? 1 : 0].store(
      std::bit_cast<uint64_t>(cumulative_logprob), std::memory_order_relaxed);
  // Pairs with the acquire in EngineChannel::ReadState. Release keeps the sum and earlier
  // completions from moving after this store. An engine that sees the end thus finds all that led
  // to it.
  line.state.store(PackSequenceState(state), std::memory_order_release);
}

void DaemonChannel::WriteFinal(uint32_t slot, const SequenceState& state) {
  SPECD_CHECK(slot < segment_->limits().max_sequences);
  // Pairs with the acquire in EngineChannel::IsFinal, which has read the state before.
  segment_->sequence_table()[slot].final_state.store(PackSequenceState(state),
                                                     std::memory_order_release);
}

void DaemonChannel::SetState(DaemonState state) {
  if (state == DaemonState::kDraining) {
    // The release below keeps this store before the state.
    segment_->page()->daemon.was_drained.store(1, std::memory_order_relaxed);
  }
  // Pairs with the acquire in EngineChannel::daemon_state. An engine that sees this state sees the
  // completions published before it.
  segment_->page()->daemon.state.store(static_cast<uint32_t>(state), std::memory_order_release);
  Doorbell(&segment_->page()->completion_bell).Ring();
}

void DaemonChannel::SetBoundOutputs(uint64_t outputs) {
  // Pairs with the acquire in Reattachment. Rounds that the engine submits after it has seen a slot
  // output here write it, because they run under the lock that the caller holds.
  segment_->page()->daemon.bound_outputs.store(outputs, std::memory_order_release);
}

bool DaemonChannel::WasEngineReady() const {
  // Follows EngineChannel::SetState. The word orders no other data.
  return segment_->page()->engine.state.load(std::memory_order_relaxed) !=
         static_cast<uint32_t>(EngineState::kStarting);
}

}  // namespace specd
