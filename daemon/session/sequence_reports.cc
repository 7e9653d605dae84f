#include "daemon/session/sequence_reports.h"

#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

uint32_t ReasonWordOf(const Sequence& sequence) {
  if (sequence.phase == SequencePhase::kPending) return SequenceState::kPending;
  if (sequence.phase == SequencePhase::kFailed) return SequenceState::kFailed;
  if (sequence.phase == SequencePhase::kWithdrawn) return SequenceState::kWithdrawn;
  return static_cast<uint32_t>(sequence.finish_reason);
}

}  // namespace

void SequenceReports::WriteState(const SequenceStream& stream, const Sequence& sequence) {
  WriteWords(stream, sequence.handle,
             {.generation = GenerationOf(sequence.handle),
              .finish_reason = ReasonWordOf(sequence),
              .kept_tokens = sequence.kept_tokens,
              .end_moved = sequence.end_moved},
             sequence.logprob_sum.value());
}

void SequenceReports::WriteWords(const SequenceStream& stream, SequenceHandle handle,
                                 const SequenceState& word, double cumulative_logprob) {
  state_.channel.WriteState(SlotOf(handle), word, cumulative_logprob);
  const bool has_ended =
      word.finish_reason != SPECD_FINISH_NONE && word.finish_reason != SequenceState::kPending;
  if (has_ended && stream.settled) {
    state_.channel.WriteFinal(SlotOf(handle), word);
  }
}

void SequenceReports::WriteEnd(const SequenceStream& stream, const SequenceResult& result) {
  WriteWords(stream, result.sequence,
             {.generation = GenerationOf(result.sequence),
              .finish_reason = static_cast<uint32_t>(result.finish_reason),
              .kept_tokens = result.total_kept,
              .end_moved = false},
             result.cumulative_logprob);
}

void SequenceReports::Publish(const SequenceResult& result, int64_t time_ns, SequenceStream* to) {
  SequenceStream& stream = *to;
  ++stream.rounds;
  stream.accepted += result.num_accepted;
  EventQueue::Header header = {.sequence = result.sequence,
                               .stream = stream.id,
                               .offset = result.total_kept - result.num_kept,
                               .time_ns = time_ns,
                               .cumulative_logprob = result.cumulative_logprob,
                               .stop_token = result.stop_token,
                               .accepted = result.num_accepted,
                               .has_logprobs = stream.has_logprobs};
  if (result.num_kept > 0) {
    state_.events->Push(header, {result.tokens, result.num_kept},
                        {result.scores, size_t{result.num_kept} * result.scores_per_token});
  }
  if (result.finish_reason == FinishReason::kNone) return;
  header.kind = TokenEventKind::kEnd;
  header.finish_reason = static_cast<uint32_t>(result.finish_reason);
  header.offset = result.total_kept;
  header.time_ns = state_.options.clock->NowNs();
  header.accepted = 0;
  header.fault = {.refusal = result.refusal, .place = result.num_kept, .row = result.bad_row};
  state_.events->Push(header);
}

void SequenceReports::PushEnd(const SequenceStream& stream, const Sequence& sequence) {
  state_.events->Push({.kind = TokenEventKind::kEnd,
                       .finish_reason = static_cast<uint32_t>(sequence.finish_reason),
                       .sequence = sequence.handle,
                       .stream = stream.id,
                       .offset = sequence.kept_tokens,
                       .time_ns = state_.options.clock->NowNs(),
                       .cumulative_logprob = sequence.logprob_sum.value(),
                       .stop_token = sequence.stop_token});
}

}  // namespace specd
