// SubmissionCopy is the daemon's private copy of one submission, a round or a call.
//
// DaemonChannel fills it; the session reads it. All memory is taken at construction, so make one at
// attach and use it again and again. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ipc/base/limits.h"
#include "ipc/segment/calls.h"
#include "ipc/segment/layout.h"
#include "kernels/core/calls.h"
#include "kernels/core/sequence_round.h"

namespace specd {

class SubmissionCopy {
 public:
  explicit SubmissionCopy(const SessionLimits& limits)
      : payload_(std::max(uint64_t{limits.max_batch} * ComputeLayout(limits).draft_record_bytes,
                          ComputeLayout(limits).call_request_bytes)),
        records_(limits.max_batch),
        draft_calls_(limits.max_batch),
        score_calls_(limits.max_batch),
        forced_calls_(limits.max_batch) {}

  // The session's submissions are numbered from 0 on.
  uint64_t position() const { return position_; }
  uint64_t round_id() const { return round_id_; }
  uint64_t submit_ns() const { return submit_ns_; }
  uint64_t taken_ns() const { return taken_ns_; }
  // The ring entry itself was invalid. There are no records, and Complete answers the submission as
  // malformed.
  bool malformed() const { return malformed_; }
  bool staged() const { return staged_; }
  // A CUDA stream waits for the answer, and may be released without one.
  bool on_stream() const { return on_stream_; }
  // kRound if the submission was malformed.
  SubmissionKind kind() const {
    return malformed_ ? SubmissionKind::kRound : static_cast<SubmissionKind>(kind_);
  }
  std::span<const SequenceInput> records() const { return {records_.data(), Count(kRound)}; }
  // Counts and indices are unchecked; lists have the room that ipc/segment/call_layout.h says.
  std::span<const DraftInput> draft_calls() const {
    return {draft_calls_.data(), Count(kSampleDraft)};
  }
  std::span<const ScoreInput> score_calls() const { return {score_calls_.data(), Count(kScore)}; }
  std::span<const ForcedInput> forced_calls() const {
    return {forced_calls_.data(), Count(kForcedTokens)};
  }
  CoinsCall coins_call() const { return ReadCoinsCall(payload_.data(), Count(kSetCoins)); }

 private:
  friend class DaemonChannel;
  using enum SubmissionKind;
  uint32_t Count(SubmissionKind kind) const { return this->kind() == kind ? num_records_ : 0; }
  // The number of records that each get a result.
  uint32_t num_results() const { return kind() == kSetCoins ? 0 : num_records_; }

  uint64_t position_ = 0;
  uint64_t round_id_ = 0;
  uint64_t submit_ns_ = 0;
  uint64_t taken_ns_ = 0;
  bool malformed_ = false;
  bool staged_ = false;
  bool on_stream_ = false;
  uint32_t kind_ = 0;  // unchecked
  uint32_t num_records_ = 0;
  std::vector<char> payload_;  // max_batch draft records, or a call's request
  std::vector<SequenceInput> records_;
  std::vector<DraftInput> draft_calls_;
  std::vector<ScoreInput> score_calls_;
  std::vector<ForcedInput> forced_calls_;
};

}  // namespace specd
