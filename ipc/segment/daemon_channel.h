// DaemonChannel: the daemon's end of a session's hot path. It takes rounds and calls as checked
// private copies and answers them.
//
// The verify thread uses it; EngineChannel (ipc/segment/engine_channel.h) is the other end. Nothing
// here allocates after construction, and nothing blocks. Times are CLOCK_MONOTONIC nanoseconds that
// the caller reads. One thread at a time; any thread may call WriteState.
#pragma once

#include <cstdint>
#include <span>

#include "ipc/segment/channel_fault.h"
#include "ipc/segment/doorbell.h"
#include "ipc/segment/draft_record.h"
#include "ipc/segment/layout.h"
#include "ipc/segment/round_words.h"
#include "ipc/segment/segment.h"
#include "ipc/segment/spsc_ring.h"
#include "ipc/segment/submission_copy.h"

namespace specd {

class DaemonChannel {
 public:
  // The segment must outlive the channel, and must be fresh: positions start at 0.
  explicit DaemonChannel(Segment* segment);

  // Row indices of later submissions are checked against these numbers, here and nowhere else.
  void SetRowLimits(const RowLimits& limits) { row_limits_ = limits; }

  // Rounds may be staged: the engine is this process. Otherwise they are malformed.
  void AllowStaging() { allows_staging_ = true; }

  // Makes sure that there will be a completion slot, then takes the oldest submission as a checked
  // private copy. False: none, or none whose rows are ready, or no completion slot free, or broken
  // (see fault()).
  bool Take(SubmissionCopy* out, uint64_t taken_ns);

  // Answers a taken submission and rings. REQUIRES: submissions are completed in the order in which
  // they were taken, each once; results are within the session's limits and as many as records
  // (none of coins).
  void Complete(const SubmissionCopy& submission, std::span<const SequenceResult> results,
                uint64_t done_ns);
  void Complete(const SubmissionCopy& submission, std::span<const DraftResult> answers,
                uint64_t done_ns);
  // Answers a call that cannot be done. REQUIRES: as Complete; `why` is an error.
  void Refuse(const SubmissionCopy& submission, const absl::Status& why, uint64_t done_ns);

  // True when Take would find a submission it can answer, or a fault that is not yet known. False
  // after a fault, so that a thread that serves several sessions can sleep.
  bool HasSubmission();
  // The oldest submission waits for its rows. No bell rings when they are ready.
  bool IsHeld() const;
  Doorbell submission_bell() const;  // to wait on, alone or with others (WaitAny)

  // To be asked between looking at the rows of a round and changing anything because of them: true
  // if the round stands. False, for good, if its stream has been released without an answer.
  bool Claim(const SubmissionCopy& submission);
  // What was claimed has failed: nothing is confirmed after all. Before Complete.
  void Withdraw(const SubmissionCopy& submission);
  bool IsAborted(const SubmissionCopy& submission) const;
  // The session is over: releases every stream that waits for it, now or later.
  void Abandon();

  // REQUIRES: slot < max_sequences; an end moves at most once.
  void WriteState(uint32_t slot, const SequenceState& state,
                  double cumulative_logprob = kNoLogprob);
  void SetState(DaemonState state);  // and wakes a waiting engine
  ChannelFault fault() const { return fault_; }

 private:
  // Where the results of a completion lie, and what its slot says of them.
  struct Payload {
    uint64_t offset = 0;
    uint32_t bytes = 0;
    uint32_t num_records = 0;
    uint32_t flags = 0;
  };

  bool HasRows() const;
  bool CopySlot(SubmissionCopy* out);
  bool CopyRound(uint64_t payload_offset, uint64_t payload_bytes, SubmissionCopy* out);
  bool CopyCall(uint64_t payload_offset, uint64_t payload_bytes, SubmissionCopy* out);
  void Publish(const SubmissionCopy& submission, const Payload& payload, uint64_t done_ns);

  Segment* segment_;
  RingConsumer<SubmissionSlot> submissions_;
  RingProducer<CompletionSlot> completions_;
  uint32_t reserved_ = 0;  // taken and not completed
  RowLimits row_limits_;
  bool allows_staging_ = false;
  ChannelFault fault_ = ChannelFault::kNone;
};

}  // namespace specd
