// The two ends of a session's hot path: rounds and calls go to the daemon, results come back.
//
// EngineChannel is used by libspecd inside the engine's process, DaemonChannel by the verify
// thread; both work on the same Segment, mapped in two processes (or once, in embedded mode). At
// most ring_depth rounds are in flight. Nothing here allocates after construction, and nothing
// blocks except the calls named Wait. Times are CLOCK_MONOTONIC nanoseconds that the caller reads.
//
// Each channel belongs to one thread. ReadState and WriteState may be called from any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "ipc/segment/calls.h"
#include "ipc/segment/doorbell.h"
#include "ipc/segment/layout.h"
#include "ipc/segment/round_words.h"
#include "ipc/segment/segment.h"
#include "ipc/segment/spsc_ring.h"
#include "kernels/core/round.h"

namespace specd {

// Why a channel cannot be used any more: the other side wrote what no correct peer writes. Sticky;
// the session is to be closed.
enum class ChannelFault {
  kNone,
  kSequence,  // a slot's sequence number jumped
  kConsumed,  // the consumed word went backward or ahead of what was published
  kPayload,   // a completion names results outside the result area, or counts out of range
};
const char* ChannelFaultName(ChannelFault fault);

// ---- engine ------------------------------------------------------------------------------------

// One sequence of a round as the engine hands it in. chain.kinds may be null (all one-hot), and so
// may chain.draft_rows (a sampled token is then refused as RecordFault::kDraftRow), mask_rows and
// the side channel; chain.target_rows is null where chain.target_argmax is not. Of a discarded
// draft nothing else is looked at.
struct EngineDraft {
  uint64_t sequence = 0;
  DraftChain chain;
  const int32_t* mask_rows = nullptr;
  bool discard = false;
  bool drafts_by_slot = false;  // chain.tokens is null
};

// Where there is no sum of logprobs.
inline constexpr double kNoLogprob = std::numeric_limits<double>::quiet_NaN();

// What the daemon says about one sequence of a round.
struct SequenceResult {
  uint64_t sequence = 0;
  uint32_t status = 0;         // SPECD_STATUS_...
  uint32_t finish_reason = 0;  // SPECD_FINISH_...
  uint32_t num_accepted = 0;
  uint32_t num_kept = 0;  // entries of tokens, at most max_draft + 1
  uint32_t total_kept = 0;
  int32_t stop_token = kNoToken;
  const TokenId* tokens = nullptr;
  uint32_t detail = 0;            // SPECD_DETAIL_...
  uint32_t scores_per_token = 0;  // at most max_scores
  const TokenScore* scores = nullptr;
  double cumulative_logprob = kNoLogprob;
};

// A completion in the engine's private memory, valid until the next Poll.
struct CompletionView {
  SubmissionKind kind = SubmissionKind::kRound;
  uint64_t round_id = 0;
  uint64_t submit_ns = 0;
  uint64_t taken_ns = 0;
  uint64_t done_ns = 0;
  bool malformed = false;  // the daemon could not read the submission: results is empty
  std::span<const SequenceResult> results;   // of a round, or of kScore
  std::span<const ChildrenAnswer> children;  // of kSampleDraft
  absl::Status refusal;                      // why a call was refused; then there is nothing else
};

enum class PushResult { kOk, kFull, kBroken };

class EngineChannel {
 public:
  // The segment must outlive the channel, and must be fresh: positions start at 0.
  explicit EngineChannel(Segment* segment);

  // Copies the round into the segment, publishes it and rings. kFull: ring_depth rounds are in
  // flight. kBroken: see fault(). REQUIRES: drafts and chains within the session's limits.
  PushResult Submit(uint64_t round_id, std::span<const EngineDraft> drafts, uint64_t submit_ns);

  // ---- rounds on a stream. The caller arms the words, enqueues on its stream what
  // ipc/segment/round_words.h shows, and then submits; the daemon takes the round once its rows are
  // ready.

  // The number that the next submission gets.
  uint64_t next_number() const { return submissions_.position() + 1; }
  // kOk: Submit will take another round, whatever the daemon does meanwhile.
  PushResult CheckRoom();
  // Makes the words of the next round say that its rows are not ready. Whoever enqueues it sets
  // passed to number - 1, but only once the stream has some of it: until then the word says whether
  // the slot's last round has passed. REQUIRES: room; streams have passed what was enqueued for the
  // slot before, or this round comes behind it on its stream.
  void ArmWords();
  PushResult SubmitOnStream(uint64_t round_id, std::span<const EngineDraft> drafts,
                            uint64_t submit_ns);
  // The daemon will answer nothing more: rounds on streams that have no completion are aborted.
  void SetDaemonGone() { daemon_gone_ = true; }

  // A round for a verifier in this process, which stages it for a graph of the engine's.
  PushResult SubmitStaged(uint64_t round_id, std::span<const EngineDraft> drafts,
                          uint64_t submit_ns) {
    return Push(round_id, drafts, submit_ns, kSubmissionStaged);
  }

  // The same for a call. kFull: a round or another call is in flight. REQUIRES: as many as
  // max_batch (kCallCoinsMax coins), at most.
  PushResult Call(std::span<const ChildrenCall> calls, uint64_t submit_ns);
  PushResult Call(std::span<const ScoreCall> calls, uint64_t submit_ns);
  PushResult Call(const CoinsCall& call, uint64_t submit_ns);

  // Takes the oldest completion if there is one. False: none, or broken (see fault()). A round on a
  // stream that was aborted has a completion at once, made here; its slot is in flight until the
  // daemon's own arrives, which is dropped, so that a late daemon meets no newer round there.
  bool Poll(CompletionView* out);

  // True when Poll would find a completion or a fault; true after a fault, so that nobody waits for
  // a daemon that broke the protocol. Where all that is in flight has been answered here: true when
  // a slot has become free.
  bool HasCompletion() const;
  bool WaitCompletion(const WaitOptions& options) const;

  uint32_t rounds_in_flight() const { return call_in_flight() ? 0 : in_flight_; }
  bool in_flight() const { return in_flight_ > 0; }
  // Is there anything in flight that Poll has not answered?
  bool awaits_answers() const { return in_flight_ > answered_early_; }
  // Gives back the slots of rounds that were answered here and that the daemon is done with.
  void FreeSlots() { (void)DropLateAnswers(); }
  bool call_in_flight() const {
    return in_flight_ > 0 && in_flight_kind_ != SubmissionKind::kRound;
  }
  SequenceState ReadState(uint32_t slot) const;  // REQUIRES: slot < max_sequences
  // The sum of the end that `state` names; meaningful once it has finished. REQUIRES: `state` came
  // from ReadState(slot), and the sequence has not been closed since.
  double ReadLogprob(uint32_t slot, const SequenceState& state) const;
  DaemonState daemon_state() const;
  void SetState(EngineState state);
  ChannelFault fault() const { return fault_; }
  Doorbell completion_bell() const;  // to wake a WaitCompletion from this process

 private:
  // What a slot says of its payload.
  struct Payload {
    SubmissionKind kind = SubmissionKind::kRound;
    uint64_t offset = 0;
    uint32_t bytes = 0;
    uint32_t num_records = 0;
    uint32_t flags = 0;
  };

  // Private memory, by address only: what no answer needs is never touched. A call leaves the
  // results of the last round as they are.
  struct Received {
    std::unique_ptr<char[]> payload;
    std::vector<SequenceResult> results;
  };

  // What an aborted round is answered from.
  struct Sent {
    uint64_t round_id = 0;
    uint64_t submit_ns = 0;
    uint32_t num_drafts = 0;
    bool on_stream = false;
  };

  PushResult Push(uint64_t round_id, std::span<const EngineDraft> drafts, uint64_t submit_ns,
                  uint32_t flags);
  void Publish(const Payload& payload, uint64_t round_id, uint64_t submit_ns);
  Sent& SentOf(uint64_t number) { return sent_[(number - 1) % sent_.size()]; }
  uint64_t* SequencesOf(uint64_t number);
  bool IsNextAborted() const;
  // What the ring holds once they are gone.
  RingState DropLateAnswers();
  void AnswerAborted(CompletionView* out);
  template <class Calls>
  PushResult SubmitCall(SubmissionKind kind, const Calls& calls, size_t num_records,
                        uint64_t submit_ns);
  bool CopyPayload(const CompletionSlot& slot, CompletionView* out);
  bool CopyResults(uint64_t payload_offset, uint32_t num_records, Received* to);
  bool CopyResult(const char* from, char* record, SequenceResult* result);
  bool CopyChildren(uint32_t num_records);

  Segment* segment_;
  RingProducer<SubmissionSlot> submissions_;
  RingConsumer<CompletionSlot> completions_;
  uint32_t in_flight_ = 0;
  uint32_t answered_early_ = 0;  // of these, the oldest: aborted, and answered here
  bool daemon_gone_ = false;
  SubmissionKind in_flight_kind_ = SubmissionKind::kRound;  // of all that is in flight
  ChannelFault fault_ = ChannelFault::kNone;
  Received rounds_;
  Received calls_;
  std::vector<ChildrenAnswer> children_;
  std::vector<Sent> sent_;                      // by slot
  std::unique_ptr<uint64_t[]> sent_sequences_;  // max_batch for each slot, of rounds on streams
};

// ---- daemon ------------------------------------------------------------------------------------

// What is wrong with one sequence of a submission. Only that sequence is not verified. Values are
// SPECD_DETAIL_...
enum class RecordFault : uint8_t {
  kNone = 0,
  kSequence = 1,      // the slot of the handle is not below max_sequences: no such sequence
  kCount = 2,         // num_drafts > max_draft
  kKind = 3,          // a kind that is neither one-hot nor sampled
  kTargetRow = 4,     // a row index not below the number of target rows bound
  kDraftRow = 5,      // the same for the draft rows of sampled tokens
  kFlags = 6,         // an unknown flag
  kMaskRow = 7,       // a mask row that is neither -1 nor bound
  kArgmax = 8,        // a target_argmax outside the vocabulary
  kDraftTokens = 10,  // tokens by slot, and none are bound; 9 is the verifier's
};

// chain is empty when fault is not kNone. Its pointers stay valid until the next Take into the same
// SubmissionCopy.
struct DraftRecordView {
  uint64_t sequence = 0;
  RecordFault fault = RecordFault::kNone;
  DraftChain chain;
  const int32_t* mask_rows = nullptr;
  bool discard = false;
  bool drafts_by_slot = false;
};

// A private copy of one submission; make one at attach and use it again and again.
class SubmissionCopy {
 public:
  explicit SubmissionCopy(const SessionLimits& limits);

  uint64_t round_id() const { return round_id_; }
  uint64_t submit_ns() const { return submit_ns_; }
  uint64_t taken_ns() const { return taken_ns_; }
  // The slot itself was not understood: there are no records, and Complete answers the submission
  // as malformed.
  bool malformed() const { return malformed_; }
  bool staged() const { return staged_; }
  // A stream waits for the answer, and may be released without one.
  bool on_stream() const { return on_stream_; }
  // kRound where it was not understood.
  SubmissionKind kind() const {
    return malformed_ ? SubmissionKind::kRound : static_cast<SubmissionKind>(kind_);
  }
  std::span<const DraftRecordView> records() const { return {records_.data(), Count(kRound)}; }
  // Counts and indices are as they came; lists have the room that ipc/segment/call_layout.h says.
  std::span<const ChildrenCall> children_calls() const {
    return {children_calls_.data(), Count(kSampleDraft)};
  }
  std::span<const ScoreCall> score_calls() const { return {score_calls_.data(), Count(kScore)}; }
  CoinsCall coins_call() const { return ReadCoinsCall(payload_.data(), Count(kSetCoins)); }

 private:
  friend class DaemonChannel;
  using enum SubmissionKind;
  uint32_t Count(SubmissionKind kind) const { return this->kind() == kind ? num_records_ : 0; }
  // Records that are answered by a result each.
  uint32_t num_results() const { return kind() == kSetCoins ? 0 : num_records_; }

  uint64_t position_ = 0;
  uint64_t round_id_ = 0;
  uint64_t submit_ns_ = 0;
  uint64_t taken_ns_ = 0;
  bool malformed_ = false;
  bool staged_ = false;
  bool on_stream_ = false;
  uint32_t kind_ = 0;  // as it came
  uint32_t num_records_ = 0;
  std::vector<char> payload_;  // max_batch draft records, or a call's request
  std::vector<DraftRecordView> records_;
  std::vector<ChildrenCall> children_calls_;
  std::vector<ScoreCall> score_calls_;
};

// How many rows are bound; 0 while a tensor is not.
struct RowLimits {
  uint64_t target_rows = 0;
  uint64_t draft_rows = 0;
  uint64_t mask_rows = 0;
  bool has_draft_tokens = false;
};

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
  void Complete(const SubmissionCopy& submission, std::span<const ChildrenAnswer> answers,
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
  void CopyRecord(const char* from, char* record);
  DraftRecordView CheckRecord(const char* record);
  RecordFault CheckRows(const DraftRecordView& view);

  Segment* segment_;
  RingConsumer<SubmissionSlot> submissions_;
  RingProducer<CompletionSlot> completions_;
  uint32_t reserved_ = 0;  // taken and not completed
  RowLimits row_limits_;
  bool allows_staging_ = false;
  ChannelFault fault_ = ChannelFault::kNone;
};

}  // namespace specd
