// DaemonChannel is the daemon's end of a session's hot path. It takes rounds and calls as checked
// private copies and answers them.
//
// The verify thread uses it; EngineChannel (ipc/segment/engine_channel.h) is the other end. The
// channel allocates nothing after construction and never blocks. Times are CLOCK_MONOTONIC
// nanoseconds that the caller reads. One thread at a time; any thread may call WriteState,
// WriteFinal, SetBoundOutputs and WasEngineReady.
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
  // The segment must outlive the channel and must be fresh: positions start at 0.
  explicit DaemonChannel(Segment* segment);

  // Sets the limits for row indices of later submissions. They are checked here and nowhere else.
  void SetRowLimits(const RowLimits& limits) { row_limits_ = limits; }

  // Allows staged rounds, for an engine in this process. Without it they are malformed.
  void AllowStaging() { allows_staging_ = true; }

  // Reserves a completion entry, then takes the oldest submission as a checked private copy. False:
  // there is no submission, its rows are not ready, no completion entry is free, or the channel is
  // broken (see fault()).
  bool Take(SubmissionCopy* out, uint64_t taken_ns);

  // Copies the oldest submission while it waits for its rows, and takes nothing: Take copies and
  // checks it again. False if no round waits. The copy is for work that may be done early and
  // changes no answer.
  bool Peek(SubmissionCopy* out) const;

  // Answers a taken submission and rings. REQUIRES: submissions are completed in the order in which
  // they were taken, each once. Results are within the session's limits, one for each record (none
  // for coins).
  void Complete(const SubmissionCopy& submission, std::span<const SequenceResult> results,
                uint64_t done_ns);
  void Complete(const SubmissionCopy& submission, std::span<const DraftResult> answers,
                uint64_t done_ns);
  // Answers a call that cannot be done. REQUIRES: as Complete; `why` is an error.
  void Refuse(const SubmissionCopy& submission, const absl::Status& why, uint64_t done_ns);

  // Returns true if Take would find a submission that it can answer, or a fault that is not yet
  // known. After a fault it returns false, so that a thread that serves several sessions can sleep.
  bool HasSubmission();
  // The submissions that have no answer, as far as the engine's ring is in order.
  uint32_t CountInFlight() const;
  // Tells whether the oldest submission waits for its rows. No bell rings when the rows are ready.
  bool IsHeld() const;
  // Tells whether the engine has marked the draft tokens by slot of the submission that Take would
  // take next. No bell rings for that either.
  bool AreDraftsMarked() const;
  // The position in the ring of the submission that Take would take next.
  uint64_t next_position() const { return submissions_.position(); }
  Doorbell submission_bell() const;  // to wait on, alone or with others (WaitAny)

  // Call it after the rows of a round were read and before anything changes because of them. True:
  // the round may be committed. False, permanently: its CUDA stream was released without an answer.
  bool Claim(const SubmissionCopy& submission);
  // Withdraws a claim: the round failed, and nothing is confirmed. Call it before Complete.
  void Withdraw(const SubmissionCopy& submission);
  bool IsAborted(const SubmissionCopy& submission) const;
  // Ends the session: releases every CUDA stream that waits for it, now or later.
  void Abandon();

  // REQUIRES: slot < max_sequences; an end moves at most once.
  void WriteState(uint32_t slot, const SequenceState& state,
                  double cumulative_logprob = kNoLogprob);
  // Says that no later WriteState will move the end that `state` names. REQUIRES: WriteState has
  // written this state.
  void WriteFinal(uint32_t slot, const SequenceState& state);
  void SetState(DaemonState state);  // also wakes a waiting engine
  // Byte k: the slot outputs that rank k, a process of its own, has bound; a bit for each.
  void SetBoundOutputs(uint64_t outputs);
  // True once the engine has been ready for rounds. An engine that comes from another daemon is
  // ready when its ranks are back.
  bool WasEngineReady() const;
  ChannelFault fault() const { return fault_; }

 private:
  // The place of a completion's results, and the fields of its ring entry.
  struct Payload {
    uint64_t offset = 0;
    uint32_t bytes = 0;
    uint32_t num_records = 0;
    uint32_t flags = 0;
  };

  bool HasRows() const;
  bool CopyEntry(SubmissionCopy* out) const;
  bool CopyRound(uint64_t payload_offset, uint64_t payload_bytes, SubmissionCopy* out) const;
  bool CopyCall(uint64_t payload_offset, uint64_t payload_bytes, SubmissionCopy* out) const;
  void Publish(const SubmissionCopy& submission, const Payload& payload, uint64_t done_ns);

  Segment* segment_;
  RingConsumer<SubmissionEntry> submissions_;
  RingProducer<CompletionEntry> completions_;
  uint32_t reserved_ = 0;  // taken and not completed
  RowLimits row_limits_;
  bool allows_staging_ = false;
  ChannelFault fault_ = ChannelFault::kNone;
};

}  // namespace specd
