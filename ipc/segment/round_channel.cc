#include "ipc/segment/round_channel.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ipc/base/peer_memory.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {

const char* ChannelFaultName(ChannelFault fault) {
  switch (fault) {
    case ChannelFault::kNone:
      return "none";
    case ChannelFault::kSequence:
      return "a slot's sequence number jumped";
    case ChannelFault::kConsumed:
      return "a consumed counter is impossible";
    case ChannelFault::kPayload:
      return "a completion's results are out of bounds";
  }
  return "unknown";
}

namespace {

// Copies `count` elements if there are any.
template <class T>
void Put(char* to, const T* from, size_t count) {
  if (count > 0) std::memcpy(to, from, count * sizeof(T));
}

uint32_t FlagsOf(const EngineDraft& draft) {
  if (draft.discard) return kDraftDiscard;
  uint32_t flags = 0;
  if (draft.mask_rows != nullptr) flags |= kDraftMaskRows;
  if (draft.chain.draft_weights != nullptr) flags |= kDraftSideChannel;
  if (draft.chain.target_argmax != nullptr) flags |= kDraftArgmax;
  if (draft.drafts_by_slot) flags |= kDraftBySlot;
  return flags;
}

void WriteOptional(const SegmentLayout& layout, const EngineDraft& draft, uint32_t flags,
                   char* record) {
  const DraftChain& chain = draft.chain;
  const auto num_drafts = static_cast<size_t>(chain.num_drafts);
  if ((flags & kDraftSideChannel) != 0) {
    Put(record + layout.draft_masses_offset, chain.draft_masses, num_drafts);
    Put(record + layout.draft_weights_offset, chain.draft_weights, num_drafts);
  }
  if ((flags & kDraftMaskRows) != 0) {
    Put(record + layout.draft_mask_rows_offset, draft.mask_rows, num_drafts + 1);
  }
  if ((flags & kDraftArgmax) != 0) {
    Put(record + layout.draft_argmax_offset, chain.target_argmax, num_drafts + 1);
  }
}

// `record` lies in the draft area. What a smaller draft leaves unwritten is not read.
void WriteDraft(const SegmentLayout& layout, const EngineDraft& draft, char* record) {
  const DraftChain& chain = draft.chain;
  const uint32_t flags = FlagsOf(draft);
  const size_t num_drafts = draft.discard ? 0 : static_cast<size_t>(chain.num_drafts);
  const DraftRecord header{draft.sequence, static_cast<uint32_t>(num_drafts), flags};
  std::memcpy(record, &header, sizeof(header));
  if (draft.discard) return;
  WriteOptional(layout, draft, flags, record);
  if (chain.target_argmax == nullptr) {
    Put(record + layout.draft_target_rows_offset, chain.target_rows, num_drafts + 1);
  }
  if (!draft.drafts_by_slot) Put(record + layout.draft_tokens_offset, chain.tokens, num_drafts);
  if (chain.kinds != nullptr) {
    Put(record + layout.draft_kinds_offset, chain.kinds, num_drafts);
  } else {
    static_assert(static_cast<uint8_t>(DraftKind::kOneHot) == 0);
    std::memset(record + layout.draft_kinds_offset, 0, num_drafts);
  }
  // Without rows a sampled token must not find those of an earlier round: no index is that large.
  if (chain.draft_rows != nullptr) {
    Put(record + layout.draft_draft_rows_offset, chain.draft_rows, num_drafts);
  } else {
    std::memset(record + layout.draft_draft_rows_offset, 0xff, num_drafts * sizeof(uint32_t));
  }
}

}  // namespace

EngineChannel::EngineChannel(Segment* segment)
    : segment_(segment),
      submissions_({segment->submission_slots(), &segment->page()->daemon.submissions_consumed,
                    segment->limits().ring_depth}),
      completions_({segment->completion_slots(), &segment->page()->engine.completions_consumed,
                    segment->limits().ring_depth}),
      children_(segment->limits().max_batch),
      sent_(segment->limits().ring_depth),
      sent_sequences_(std::make_unique_for_overwrite<uint64_t[]>(
          uint64_t{segment->limits().ring_depth} * segment->limits().max_batch)) {
  const uint64_t max_batch = segment->limits().max_batch;
  const uint64_t result_bytes = max_batch * segment->layout().result_record_bytes;
  rounds_ = {std::make_unique_for_overwrite<char[]>(result_bytes),
             std::vector<SequenceResult>(max_batch)};
  calls_ = {std::make_unique_for_overwrite<char[]>(
                std::max(result_bytes, max_batch * kChildrenAnswerBytes)),
            std::vector<SequenceResult>(max_batch)};
}

PushResult EngineChannel::CheckRoom() {
  if (fault_ != ChannelFault::kNone) return PushResult::kBroken;
  DropLateAnswers();
  if (in_flight_ == segment_->limits().ring_depth || call_in_flight()) return PushResult::kFull;
  const RingState state = submissions_.State();
  if (state == RingState::kFull) return PushResult::kFull;
  if (state == RingState::kCorrupt) {
    fault_ = ChannelFault::kConsumed;
    return PushResult::kBroken;
  }
  return PushResult::kOk;
}

void EngineChannel::Publish(const Payload& payload, uint64_t round_id, uint64_t submit_ns) {
  SubmissionSlot* slot = submissions_.Slot();
  slot->round_id = round_id;
  slot->submit_ns = submit_ns;
  slot->payload_offset = payload.offset;
  slot->payload_bytes = payload.bytes;
  slot->num_records = payload.num_records;
  slot->flags = payload.flags;
  slot->kind = static_cast<uint32_t>(payload.kind);
  SentOf(next_number()) = {round_id, submit_ns, payload.num_records,
                           payload.flags == kSubmissionOnStream};
  submissions_.Publish();
  ++in_flight_;
  in_flight_kind_ = payload.kind;
  Doorbell(&segment_->page()->submission_bell).Ring();
}

PushResult EngineChannel::Submit(uint64_t round_id, std::span<const EngineDraft> drafts,
                                 uint64_t submit_ns) {
  return Push(round_id, drafts, submit_ns, 0);
}

void EngineChannel::ArmWords() {
  RoundWords* words = segment_->round_words(next_number());
  // The round of a lap ago has been polled, but a daemon that was killed behind its completion has
  // not released its stream; from here on nobody would look for it.
  const uint64_t depth = segment_->limits().ring_depth;
  if (next_number() > depth) Release(words, next_number() - depth);
  // Nobody waits for these words now. What the stream writes is ordered behind by its submission,
  // what the daemon reads by the ring.
  words->ready.store(next_number() - 1, std::memory_order_relaxed);
}

PushResult EngineChannel::SubmitOnStream(uint64_t round_id, std::span<const EngineDraft> drafts,
                                         uint64_t submit_ns) {
  const uint64_t number = next_number();
  const PushResult pushed = Push(round_id, drafts, submit_ns, kSubmissionOnStream);
  if (pushed != PushResult::kOk) return pushed;
  uint64_t* sequences = SequencesOf(number);
  for (size_t i = 0; i < drafts.size(); ++i) sequences[i] = drafts[i].sequence;
  return pushed;
}

uint64_t* EngineChannel::SequencesOf(uint64_t number) {
  return sent_sequences_.get() + (number - 1) % sent_.size() * segment_->limits().max_batch;
}

PushResult EngineChannel::Push(uint64_t round_id, std::span<const EngineDraft> drafts,
                               uint64_t submit_ns, uint32_t flags) {
  const SessionLimits& limits = segment_->limits();
  const SegmentLayout& layout = segment_->layout();
  SPECD_CHECK(drafts.size() <= limits.max_batch);
  if (const PushResult room = CheckRoom(); room != PushResult::kOk) return room;
  const uint64_t payload_offset =
      uint64_t{submissions_.slot_index()} * limits.max_batch * layout.draft_record_bytes;
  char* record = segment_->at(layout.draft_payload_offset + payload_offset);
  for (const EngineDraft& draft : drafts) {
    SPECD_CHECK(draft.discard ||
                (draft.chain.num_drafts >= 0 &&
                 static_cast<uint32_t>(draft.chain.num_drafts) <= limits.max_draft));
    WriteDraft(layout, draft, record);
    record += layout.draft_record_bytes;
  }
  const auto num_drafts = static_cast<uint32_t>(drafts.size());
  Publish({SubmissionKind::kRound, payload_offset, num_drafts * layout.draft_record_bytes,
           num_drafts, flags},
          round_id, submit_ns);
  return PushResult::kOk;
}

bool EngineChannel::CopyResults(uint64_t payload_offset, uint32_t num_records, Received* to) {
  const SegmentLayout& layout = segment_->layout();
  const char* from = segment_->at(layout.result_payload_offset + payload_offset);
  char* record = to->payload.get();
  for (uint32_t i = 0; i < num_records; ++i) {
    if (!CopyResult(from, record, &to->results[i])) return false;
    from += layout.result_record_bytes;
    record += layout.result_record_bytes;
  }
  return true;
}

// Results are private once copied; a count that does not fit would be read past its record. Scores
// are many and seldom asked for, so only those that are there are copied.
bool EngineChannel::CopyResult(const char* from, char* record, SequenceResult* result) {
  const SegmentLayout& layout = segment_->layout();
  CopyOnce(record, from, layout.result_scores_offset);
  ResultRecord header;
  std::memcpy(&header, record, sizeof(header));
  if (header.num_kept > segment_->limits().max_draft + 1 ||
      header.scores_per_token > segment_->limits().max_scores) {
    return false;
  }
  const bool has_scores = header.scores_per_token > 0;
  CopyOnce(record + layout.result_scores_offset, from + layout.result_scores_offset,
           uint64_t{header.num_kept} * header.scores_per_token * sizeof(TokenScore));
  *result = {header.sequence,
             header.status,
             header.finish_reason,
             header.num_accepted,
             header.num_kept,
             header.total_kept,
             header.stop_token,
             reinterpret_cast<const TokenId*>(record + layout.result_tokens_offset),
             header.detail,
             header.scores_per_token,
             has_scores ? reinterpret_cast<const TokenScore*>(record + layout.result_scores_offset)
                        : nullptr,
             header.cumulative_logprob};
  return true;
}

// Completions come in order, so the ones of rounds that were answered here come first. One look
// decides: a completion that comes behind it is the next call's, as late as the ones before.
RingState EngineChannel::DropLateAnswers() {
  RingState state = completions_.State();
  while (answered_early_ > 0 && state == RingState::kReady) {
    completions_.Release();
    --answered_early_;
    --in_flight_;
    state = completions_.State();
  }
  return state;
}

bool EngineChannel::IsNextAborted() const {
  if (answered_early_ == in_flight_) return false;
  const uint64_t number = completions_.position() + 1 + answered_early_;
  return sent_[(number - 1) % sent_.size()].on_stream &&
         (daemon_gone_ || IsAborted(*segment_->round_words(number), number));
}

void EngineChannel::AnswerAborted(CompletionView* out) {
  const uint64_t number = completions_.position() + 1 + answered_early_;
  const Sent& sent = SentOf(number);
  for (uint32_t i = 0; i < sent.num_drafts; ++i) {
    rounds_.results[i] = {};
    rounds_.results[i].sequence = SequencesOf(number)[i];
    rounds_.results[i].status = SPECD_STATUS_ABORTED;
  }
  *out = {};
  out->round_id = sent.round_id;
  out->submit_ns = out->taken_ns = out->done_ns = sent.submit_ns;
  out->results = {rounds_.results.data(), sent.num_drafts};
  ++answered_early_;
}

bool EngineChannel::Poll(CompletionView* out) {
  if (fault_ != ChannelFault::kNone) return false;
  const RingState state = DropLateAnswers();
  if (state == RingState::kEmpty) {
    if (!IsNextAborted()) return false;
    AnswerAborted(out);
    return true;
  }
  if (state == RingState::kCorrupt || in_flight_ == 0) {
    fault_ = ChannelFault::kSequence;
    return false;
  }
  const CompletionSlot* slot = completions_.Slot();
  out->round_id = ReadOnce(slot->round_id);
  out->submit_ns = ReadOnce(slot->submit_ns);
  out->taken_ns = ReadOnce(slot->taken_ns);
  out->done_ns = ReadOnce(slot->done_ns);
  if (!CopyPayload(*slot, out)) {
    fault_ = ChannelFault::kPayload;
    return false;
  }
  completions_.Release();
  --in_flight_;
  return true;
}

// The k-th completion answers the k-th submission, so its kind is known; another one is a fault.
bool EngineChannel::CopyPayload(const CompletionSlot& slot, CompletionView* out) {
  const SegmentLayout& layout = segment_->layout();
  const uint32_t flags = ReadOnce(slot.flags);
  const uint32_t num_records = ReadOnce(slot.num_records);
  out->kind = in_flight_kind_;
  out->malformed = (flags & kCompletionMalformed) != 0;
  out->results = {};
  out->children = {};
  out->refusal = absl::OkStatus();
  if (ReadOnce(slot.kind) != static_cast<uint32_t>(in_flight_kind_) ||
      num_records > segment_->limits().max_batch) {
    return false;
  }
  if ((flags & kCompletionRefused) != 0) {
    if (in_flight_kind_ == SubmissionKind::kRound) return false;
    out->refusal = ReadRefusal(segment_->at(layout.call_answer_offset));
    return true;
  }
  if (in_flight_kind_ == SubmissionKind::kSampleDraft) {
    if (!CopyChildren(num_records)) return false;
    out->children = {children_.data(), num_records};
    return true;
  }
  Received* to = in_flight_kind_ == SubmissionKind::kRound ? &rounds_ : &calls_;
  const uint64_t payload_offset = ReadOnce(slot.payload_offset);
  const uint64_t payload_bytes = uint64_t{num_records} * layout.result_record_bytes;
  if (payload_bytes > layout.result_payload_bytes ||
      payload_offset > layout.result_payload_bytes - payload_bytes ||
      !CopyResults(payload_offset, num_records, to)) {
    return false;
  }
  out->results = {to->results.data(), num_records};
  return true;
}

bool EngineChannel::HasCompletion() const {
  if (fault_ != ChannelFault::kNone) return true;
  const bool all_answered = answered_early_ == in_flight_;
  if (completions_.State(all_answered ? 0 : answered_early_) != RingState::kEmpty) return true;
  return IsNextAborted();
}

bool EngineChannel::WaitCompletion(const WaitOptions& options) const {
  return completion_bell().Wait(options, [this] { return HasCompletion(); });
}

SequenceState EngineChannel::ReadState(uint32_t slot) const {
  SPECD_CHECK(slot < segment_->limits().max_sequences);
  // Pairs with the release in DaemonChannel::WriteState. Acquire keeps what the engine does because
  // of the answer from moving before the look.
  return UnpackSequenceState(
      segment_->sequence_table()[slot].state.load(std::memory_order_acquire));
}

double EngineChannel::ReadLogprob(uint32_t slot, const SequenceState& state) const {
  SPECD_CHECK(slot < segment_->limits().max_sequences);
  // Ordered behind the state by the acquire in ReadState, and written no more once it is named.
  const SequenceLine& line = segment_->sequence_table()[slot];
  return std::bit_cast<double>(
      line.cumulative_logprob[state.end_moved ? 1 : 0].load(std::memory_order_relaxed));
}

DaemonState EngineChannel::daemon_state() const {
  // Pairs with the release in DaemonChannel::SetState; the word stands alone.
  return static_cast<DaemonState>(segment_->page()->daemon.state.load(std::memory_order_acquire));
}

void EngineChannel::SetState(EngineState state) {
  // For whoever looks at the segment from outside; release, so that what it describes has happened.
  segment_->page()->engine.state.store(static_cast<uint32_t>(state), std::memory_order_release);
  Doorbell(&segment_->page()->submission_bell).Ring();
}

Doorbell EngineChannel::completion_bell() const {
  return Doorbell(&segment_->page()->completion_bell);
}

}  // namespace specd
