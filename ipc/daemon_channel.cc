#include <cstring>

#include "ipc/peer_memory.h"
#include "ipc/round_channel.h"
#include "kernels/core/check.h"

namespace specd {

SubmissionCopy::SubmissionCopy(const SessionLimits& limits)
    : payload_(uint64_t{limits.max_batch} * ComputeLayout(limits).draft_record_bytes),
      records_(limits.max_batch) {}

DaemonChannel::DaemonChannel(Segment* segment)
    : segment_(segment),
      submissions_({segment->submission_slots(), &segment->page()->daemon.submissions_consumed,
                    segment->limits().ring_depth}),
      completions_({segment->completion_slots(), &segment->page()->engine.completions_consumed,
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
  const RingState room = completions_.State(reserved_);
  if (room == RingState::kFull) return false;
  if (room == RingState::kCorrupt) {
    fault_ = ChannelFault::kConsumed;
    return false;
  }
  out->position_ = submissions_.position();
  out->taken_ns_ = taken_ns;
  out->malformed_ = !CopySlot(out);
  if (out->malformed_) {
    out->num_records_ = 0;
  } else {
    CheckRecords(out);
  }
  submissions_.Release();
  ++reserved_;
  return true;
}

// Copies slot and payload; false if the slot does not name records inside the draft area.
bool DaemonChannel::CopySlot(SubmissionCopy* out) {
  const SegmentLayout& layout = segment_->layout();
  const SubmissionSlot* slot = submissions_.Slot();
  out->round_id_ = ReadOnce(slot->round_id);
  out->submit_ns_ = ReadOnce(slot->submit_ns);
  const uint64_t payload_offset = ReadOnce(slot->payload_offset);
  const uint64_t payload_bytes = ReadOnce(slot->payload_bytes);
  const uint32_t num_records = ReadOnce(slot->num_records);
  const uint32_t flags = ReadOnce(slot->flags);
  if (flags != 0 || num_records > segment_->limits().max_batch) return false;
  if (payload_bytes != uint64_t{num_records} * layout.draft_record_bytes) return false;
  if (payload_bytes > layout.draft_payload_bytes ||
      payload_offset > layout.draft_payload_bytes - payload_bytes ||
      payload_offset % kRecordAlignBytes != 0) {
    return false;
  }
  CopyOnce(out->payload_.data(), segment_->at(layout.draft_payload_offset + payload_offset),
           payload_bytes);
  out->num_records_ = num_records;
  return true;
}

void DaemonChannel::CheckRecords(SubmissionCopy* out) {
  const uint32_t record_bytes = segment_->layout().draft_record_bytes;
  for (uint32_t i = 0; i < out->num_records_; ++i) {
    out->records_[i] = CheckRecord(out->payload_.data() + uint64_t{i} * record_bytes);
  }
}

// `record` lies in private memory.
DraftRecordView DaemonChannel::CheckRecord(const char* record) {
  const SessionLimits& limits = segment_->limits();
  const SegmentLayout& layout = segment_->layout();
  DraftRecord header;
  std::memcpy(&header, record, sizeof(header));
  DraftRecordView view{header.sequence, RecordFault::kNone, {}};
  const auto refused = [&view](RecordFault fault) {
    view.fault = fault;
    return view;
  };

  const uint32_t slot = SequenceSlot(header.sequence);
  if (slot >= limits.max_sequences) return refused(RecordFault::kSequence);
  if (header.reserved != 0) return refused(RecordFault::kReserved);
  if (header.num_drafts > limits.max_draft) return refused(RecordFault::kCount);

  DraftChain chain;
  chain.num_drafts = static_cast<int32_t>(header.num_drafts);
  chain.tokens = reinterpret_cast<const TokenId*>(record + layout.draft_tokens_offset);
  chain.target_rows = reinterpret_cast<const uint32_t*>(record + layout.draft_target_rows_offset);
  chain.draft_rows = reinterpret_cast<const uint32_t*>(record + layout.draft_draft_rows_offset);
  chain.kinds = reinterpret_cast<const DraftKind*>(record + layout.draft_kinds_offset);
  for (uint32_t i = 0; i <= header.num_drafts; ++i) {
    if (chain.target_rows[i] >= row_limits_.target_rows) return refused(RecordFault::kTargetRow);
  }
  for (uint32_t i = 0; i < header.num_drafts; ++i) {
    if (chain.kinds[i] == DraftKind::kOneHot) continue;
    if (chain.kinds[i] != DraftKind::kSampled) return refused(RecordFault::kKind);
    if (chain.draft_rows[i] >= row_limits_.draft_rows) return refused(RecordFault::kDraftRow);
  }
  view.chain = chain;
  return view;
}

void DaemonChannel::Complete(const SubmissionCopy& submission,
                             std::span<const SequenceResult> results, uint64_t done_ns) {
  const SessionLimits& limits = segment_->limits();
  const SegmentLayout& layout = segment_->layout();
  SPECD_CHECK(reserved_ > 0 && submission.position_ == completions_.position());
  SPECD_CHECK(results.size() == submission.num_records_);
  const uint64_t payload_offset =
      uint64_t{completions_.slot_index()} * limits.max_batch * layout.result_record_bytes;
  char* record = segment_->at(layout.result_payload_offset + payload_offset);
  for (const SequenceResult& result : results) {
    SPECD_CHECK(result.num_kept <= limits.max_draft + 1);
    const ResultRecord header{result.sequence,     result.status,   result.finish_reason,
                              result.num_accepted, result.num_kept, result.total_kept,
                              result.stop_token};
    std::memcpy(record, &header, sizeof(header));
    if (result.num_kept > 0) {
      std::memcpy(record + layout.result_tokens_offset, result.tokens,
                  result.num_kept * sizeof(TokenId));
    }
    record += layout.result_record_bytes;
  }
  CompletionSlot* slot = completions_.Slot();
  slot->round_id = submission.round_id_;
  slot->submit_ns = submission.submit_ns_;
  slot->taken_ns = submission.taken_ns_;
  slot->done_ns = done_ns;
  slot->payload_offset = payload_offset;
  slot->payload_bytes = static_cast<uint32_t>(results.size() * layout.result_record_bytes);
  slot->num_records = static_cast<uint32_t>(results.size());
  slot->flags = submission.malformed_ ? kCompletionMalformed : 0;
  completions_.Publish();
  --reserved_;
  Doorbell(&segment_->page()->completion_bell).Ring();
}

bool DaemonChannel::HasSubmission() {
  return fault_ == ChannelFault::kNone && submissions_.State() != RingState::kEmpty &&
         completions_.State(reserved_) != RingState::kFull;
}

Doorbell DaemonChannel::submission_bell() const {
  return Doorbell(&segment_->page()->submission_bell);
}

void DaemonChannel::WriteState(uint32_t slot, const SequenceState& state) {
  SPECD_CHECK(slot < segment_->limits().max_sequences);
  // Pairs with the acquire in EngineChannel::ReadState. Release keeps completions published before
  // from moving after it: an engine that sees the end finds all that led to it.
  segment_->sequence_table()[slot].store(PackSequenceState(state), std::memory_order_release);
}

void DaemonChannel::SetState(DaemonState state) {
  // Pairs with the acquire in EngineChannel::daemon_state: completions published before are seen by
  // an engine that sees this state.
  segment_->page()->daemon.state.store(static_cast<uint32_t>(state), std::memory_order_release);
  Doorbell(&segment_->page()->completion_bell).Ring();
}

}  // namespace specd
