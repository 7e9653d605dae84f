// The calls of both channels: requests and answers that are no rounds.
#include "ipc/base/peer_memory.h"
#include "ipc/segment/calls.h"
#include "ipc/segment/round_channel.h"
#include "kernels/core/check.h"

namespace specd {

// ---- engine

template <class Calls>
PushResult EngineChannel::SubmitCall(SubmissionKind kind, const Calls& calls, size_t num_records,
                                     uint64_t submit_ns) {
  if (const PushResult room = CheckRoom(); room != PushResult::kOk) return room;
  // One area serves all calls: what is in flight may not have been read yet.
  if (in_flight_ > 0) return PushResult::kFull;
  char* to = segment_->at(segment_->layout().call_request_offset);
  const uint32_t bytes = WriteCalls(segment_->layout(), calls, to);
  Publish({kind, 0, bytes, static_cast<uint32_t>(num_records)}, 0, submit_ns);
  return PushResult::kOk;
}

PushResult EngineChannel::Call(std::span<const ChildrenCall> calls, uint64_t submit_ns) {
  SPECD_CHECK(calls.size() <= segment_->limits().max_batch);
  return SubmitCall(SubmissionKind::kSampleDraft, calls, calls.size(), submit_ns);
}

PushResult EngineChannel::Call(std::span<const ScoreCall> calls, uint64_t submit_ns) {
  SPECD_CHECK(calls.size() <= segment_->limits().max_batch);
  return SubmitCall(SubmissionKind::kScore, calls, calls.size(), submit_ns);
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

// ---- daemon

// Counts are bounded by the area; what the records say is judged by whoever uses them.
bool DaemonChannel::CopyCall(uint64_t payload_offset, uint64_t payload_bytes, SubmissionCopy* out) {
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
      out->children_calls_[i] = ReadChildrenCall(layout, out->payload_.data(), i);
    } else if (kind == SubmissionKind::kScore) {
      out->score_calls_[i] = ReadScoreCall(layout, out->payload_.data(), i);
    }
  }
  return true;
}

void DaemonChannel::Complete(const SubmissionCopy& submission,
                             std::span<const ChildrenAnswer> answers, uint64_t done_ns) {
  SPECD_CHECK(submission.kind() == SubmissionKind::kSampleDraft);
  SPECD_CHECK(answers.size() == submission.num_results());
  char* to = segment_->at(segment_->layout().call_answer_offset);
  for (const ChildrenAnswer& answer : answers) {
    WriteAnswer(answer, to);
    to += kChildrenAnswerBytes;
  }
  Publish(submission,
          {0, static_cast<uint32_t>(answers.size() * kChildrenAnswerBytes),
           static_cast<uint32_t>(answers.size()), 0},
          done_ns);
}

void DaemonChannel::Refuse(const SubmissionCopy& submission, const absl::Status& why,
                           uint64_t done_ns) {
  SPECD_CHECK(!why.ok() && submission.kind() != SubmissionKind::kRound);
  WriteRefusal(why, segment_->at(segment_->layout().call_answer_offset));
  Publish(submission, {0, sizeof(RefusalRecord), 0, kCompletionRefused}, done_ns);
}

}  // namespace specd
