#include "ipc/segment/engine_channel.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "ipc/base/peer_memory.h"
#include "ipc/segment/draft_record.h"
#include "kernels/core/check.h"

namespace specd {

namespace {

RingProducer<SubmissionEntry> SubmissionsOf(const Segment& segment) {
  return RingProducer<SubmissionEntry>({segment.submission_entries(),
                                        &segment.page()->daemon.submissions_consumed,
                                        segment.limits().ring_depth});
}

RingConsumer<CompletionEntry> CompletionsOf(const Segment& segment) {
  return RingConsumer<CompletionEntry>({segment.completion_entries(),
                                        &segment.page()->engine.completions_consumed,
                                        segment.limits().ring_depth});
}

}  // namespace

EngineChannel::EngineChannel(Segment* segment)
    : segment_(segment),
      submissions_(SubmissionsOf(*segment)),
      completions_(CompletionsOf(*segment)),
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
  SubmissionEntry* entry = submissions_.Entry();
  entry->round_id = round_id;
  entry->submit_ns = submit_ns;
  entry->payload_offset = payload.offset;
  entry->payload_bytes = payload.bytes;
  entry->num_records = payload.num_records;
  entry->flags = payload.flags;
  entry->kind = static_cast<uint32_t>(payload.kind);
  SentOf(next_number()) = {.round_id = round_id,
                           .submit_ns = submit_ns,
                           .size = {payload.num_records, payload.max_nodes},
                           .on_stream = payload.flags == kSubmissionOnStream};
  submissions_.Publish();
  ++in_flight_;
  in_flight_kind_ = payload.kind;
  Doorbell(&segment_->page()->submission_bell).Ring();
}

void EngineChannel::MoveFrom(const Segment& old) {
  const uint64_t end = next_number();
  const std::vector<Sent> sent = sent_;
  SPECD_CHECK(!awaits_stream_answer());
  // The oldest of what is in flight was answered here, and no completion of it will come.
  uint64_t number = end - (std::exchange(in_flight_, 0) - std::exchange(answered_early_, 0));
  submissions_ = SubmissionsOf(*segment_);
  completions_ = CompletionsOf(*segment_);
  daemon_gone_ = false;
  const SegmentLayout& layout = segment_->layout();
  for (; number < end; ++number) {
    const uint64_t index = (number - 1) % sent.size();
    const SubmissionEntry& entry = old.submission_entries()[index];
    const auto kind = static_cast<SubmissionKind>(entry.kind);
    const bool is_round = kind == SubmissionKind::kRound;
    const uint64_t area = is_round ? layout.draft_payload_offset : layout.call_request_offset;
    const uint64_t offset = is_round ? PayloadOffset() : 0;
    std::memcpy(segment_->at(area + offset), old.at(area + entry.payload_offset),
                entry.payload_bytes);
    Publish({.kind = kind,
             .offset = offset,
             .bytes = entry.payload_bytes,
             .num_records = entry.num_records,
             .flags = entry.flags,
             .max_nodes = sent[index].size.max_nodes},
            entry.round_id, entry.submit_ns);
  }
}

PushResult EngineChannel::Submit(uint64_t round_id, std::span<const SequenceInput> inputs,
                                 uint64_t submit_ns) {
  return Push(round_id, inputs, submit_ns, 0);
}

void EngineChannel::ArmWords() {
  RoundWords* words = segment_->round_words(next_number());
  // The round of a lap ago has been polled. A daemon that was killed after the completion may not
  // have released the round's CUDA stream. No code would look for it from here on.
  const uint64_t depth = segment_->limits().ring_depth;
  if (next_number() > depth) Release(words, next_number() - depth);
  // No CUDA stream waits for these words now. The submission orders this store before the CUDA
  // stream's writes, and the ring orders it before the daemon's reads.
  words->ready.store(next_number() - 1, std::memory_order_relaxed);
}

PushResult EngineChannel::SubmitOnStream(uint64_t round_id, std::span<const SequenceInput> inputs,
                                         uint64_t submit_ns) {
  const uint64_t number = next_number();
  const PushResult pushed = Push(round_id, inputs, submit_ns, kSubmissionOnStream);
  if (pushed != PushResult::kOk) return pushed;
  uint64_t* sequences = SequencesOf(number);
  for (size_t i = 0; i < inputs.size(); ++i) sequences[i] = inputs[i].sequence;
  return pushed;
}

uint64_t* EngineChannel::SequencesOf(uint64_t number) {
  return sent_sequences_.get() + (number - 1) % sent_.size() * segment_->limits().max_batch;
}

PushResult EngineChannel::Push(uint64_t round_id, std::span<const SequenceInput> inputs,
                               uint64_t submit_ns, uint32_t flags) {
  const SessionLimits& limits = segment_->limits();
  const SegmentLayout& layout = segment_->layout();
  SPECD_CHECK(inputs.size() <= limits.max_batch);
  if (const PushResult room = CheckRoom(); room != PushResult::kOk) return room;
  const uint64_t payload_offset = PayloadOffset();
  char* record = segment_->at(layout.draft_payload_offset + payload_offset);
  uint32_t max_nodes = 0;
  for (const SequenceInput& input : inputs) {
    SPECD_CHECK(input.discard ||
                (input.draft.num_nodes >= 0 &&
                 static_cast<uint32_t>(input.draft.num_nodes) <= limits.max_draft));
    WriteDraft(layout, input, record);
    record += layout.draft_record_bytes;
    if (!input.discard) {
      max_nodes = std::max(max_nodes, static_cast<uint32_t>(input.draft.num_nodes));
    }
  }
  const uint32_t num_inputs = inputs.size();
  Publish({.kind = SubmissionKind::kRound,
           .offset = payload_offset,
           .bytes = num_inputs * layout.draft_record_bytes,
           .num_records = num_inputs,
           .flags = flags,
           .max_nodes = max_nodes},
          round_id, submit_ns);
  return PushResult::kOk;
}

RoundSize EngineChannel::NextRound() const {
  if (!awaits_answers() || call_in_flight()) return {};
  return SentOf(next_answer()).size;
}

template <class Calls>
PushResult EngineChannel::SubmitCall(SubmissionKind kind, const Calls& calls, size_t num_records,
                                     uint64_t submit_ns) {
  if (const PushResult room = CheckRoom(); room != PushResult::kOk) return room;
  // One area serves all calls, and a request in flight may not have been read yet.
  if (in_flight_ > 0) return PushResult::kFull;
  char* to = segment_->at(segment_->layout().call_request_offset);
  const uint32_t bytes = WriteCalls(segment_->layout(), calls, to);
  Publish({.kind = kind,
           .offset = 0,
           .bytes = bytes,
           .num_records = static_cast<uint32_t>(num_records)},
          0, submit_ns);
  return PushResult::kOk;
}

PushResult EngineChannel::Call(std::span<const DraftInput> calls, uint64_t submit_ns) {
  SPECD_CHECK(calls.size() <= segment_->limits().max_batch);
  return SubmitCall(SubmissionKind::kSampleDraft, calls, calls.size(), submit_ns);
}

PushResult EngineChannel::Call(std::span<const ScoreInput> calls, uint64_t submit_ns) {
  SPECD_CHECK(calls.size() <= segment_->limits().max_batch);
  return SubmitCall(SubmissionKind::kScore, calls, calls.size(), submit_ns);
}

PushResult EngineChannel::Call(std::span<const ForcedInput> calls, uint64_t submit_ns) {
  SPECD_CHECK(calls.size() <= segment_->limits().max_batch);
  return SubmitCall(SubmissionKind::kForcedTokens, calls, calls.size(), submit_ns);
}

PushResult EngineChannel::Call(const CoinsCall& call, uint64_t submit_ns) {
  return SubmitCall(SubmissionKind::kSetCoins, call, call.coins.size(), submit_ns);
}

bool EngineChannel::CopyChildren(uint32_t num_records) {
  const char* from = segment_->at(segment_->layout().call_answer_offset);
  for (uint32_t i = 0; i < num_records; ++i) {
    const uint64_t offset = uint64_t{i} * kChildrenAnswerBytes;
    if (!ReadAnswer(from + offset, calls_.payload.get() + offset, &children_[i])) return false;
  }
  return true;
}

bool EngineChannel::CopyResults(uint64_t payload_offset, uint32_t num_records, Received* to) {
  const SegmentLayout& layout = segment_->layout();
  const char* from = segment_->at(layout.result_payload_offset + payload_offset);
  char* record = to->payload.get();
  for (uint32_t i = 0; i < num_records; ++i) {
    if (!ReadResult(layout, segment_->limits(), from, record, &to->results[i])) return false;
    from += layout.result_record_bytes;
    record += layout.result_record_bytes;
  }
  return true;
}

// Completions come in order, so those of rounds that were answered here come first. One look
// decides: a completion that comes after it is left for a later look.
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
  const uint64_t number = next_answer();
  return SentOf(number).on_stream &&
         (daemon_gone_ || IsAborted(*segment_->round_words(number), number));
}

void EngineChannel::AnswerAborted(CompletionView* out) {
  const uint64_t number = next_answer();
  const Sent& sent = SentOf(number);
  for (uint32_t i = 0; i < sent.size.num_sequences; ++i) {
    rounds_.results[i] = {.sequence = SequencesOf(number)[i], .status = RoundStatus::kAborted};
  }
  *out = {};
  out->round_id = sent.round_id;
  out->submit_ns = out->taken_ns = out->done_ns = sent.submit_ns;
  out->results = {rounds_.results.data(), sent.size.num_sequences};
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
  const CompletionEntry* entry = completions_.Entry();
  out->round_id = ReadOnce(entry->round_id);
  out->submit_ns = ReadOnce(entry->submit_ns);
  out->taken_ns = ReadOnce(entry->taken_ns);
  out->done_ns = ReadOnce(entry->done_ns);
  if (!CopyPayload(*entry, out)) {
    fault_ = ChannelFault::kPayload;
    return false;
  }
  completions_.Release();
  --in_flight_;
  return true;
}

// The k-th completion answers the k-th submission, so its kind is known; another kind is a fault.
bool EngineChannel::CopyPayload(const CompletionEntry& entry, CompletionView* out) {
  const SegmentLayout& layout = segment_->layout();
  const uint32_t flags = ReadOnce(entry.flags);
  const uint32_t num_records = ReadOnce(entry.num_records);
  out->kind = in_flight_kind_;
  out->malformed = (flags & kCompletionMalformed) != 0;
  out->results = {};
  out->children = {};
  out->refusal = absl::OkStatus();
  if (ReadOnce(entry.kind) != static_cast<uint32_t>(in_flight_kind_) ||
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
  const uint64_t payload_offset = ReadOnce(entry.payload_offset);
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
  // Pairs with the release in DaemonChannel::WriteState. Acquire keeps the engine's later work from
  // moving before this look.
  return UnpackSequenceState(
      segment_->sequence_table()[slot].state.load(std::memory_order_acquire));
}

double EngineChannel::ReadLogprob(uint32_t slot, const SequenceState& state) const {
  SPECD_CHECK(slot < segment_->limits().max_sequences);
  // The acquire in ReadState orders this load after the state. The daemon no longer writes the sum
  // once a state names it.
  const SequenceLine& line = segment_->sequence_table()[slot];
  return std::bit_cast<double>(
      line.cumulative_logprob[state.end_moved ? 1 : 0].load(std::memory_order_relaxed));
}

bool EngineChannel::IsFinal(uint32_t slot, const SequenceState& state) const {
  SPECD_CHECK(slot < segment_->limits().max_sequences);
  // Pairs with the release in DaemonChannel::WriteFinal. If the end moved after `state` was read,
  // the words differ.
  return segment_->sequence_table()[slot].final_state.load(std::memory_order_acquire) ==
         PackSequenceState(state);
}

DaemonState EngineChannel::daemon_state() const {
  // Pairs with the release in DaemonChannel::SetState. The word orders no other data.
  return static_cast<DaemonState>(segment_->page()->daemon.state.load(std::memory_order_acquire));
}

bool EngineChannel::daemon_was_drained() const {
  // Follows daemon_state, whose acquire pairs with the release in DaemonChannel::SetState.
  return segment_->page()->daemon.was_drained.load(std::memory_order_relaxed) != 0;
}

void EngineChannel::SetState(EngineState state) {
  // For observers of the segment. Release, so that everything the state describes has happened.
  segment_->page()->engine.state.store(static_cast<uint32_t>(state), std::memory_order_release);
  Doorbell(&segment_->page()->submission_bell).Ring();
}

Doorbell EngineChannel::completion_bell() const {
  return Doorbell(&segment_->page()->completion_bell);
}

}  // namespace specd
