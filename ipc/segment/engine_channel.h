// EngineChannel is the engine's end of a session's hot path. It sends rounds and calls to the
// daemon and receives results.
//
// libspecd uses it inside the engine's process. DaemonChannel (ipc/segment/daemon_channel.h) is the
// other end, on the same Segment, which two processes map (or one, in embedded mode). At most
// ring_depth rounds are in flight. The channel allocates nothing after construction, and only the
// calls named Wait block. Times are CLOCK_MONOTONIC nanoseconds that the caller reads. One thread
// at a time; any thread may call ReadState.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ipc/segment/calls.h"
#include "ipc/segment/channel_fault.h"
#include "ipc/segment/doorbell.h"
#include "ipc/segment/layout.h"
#include "ipc/segment/round_words.h"
#include "ipc/segment/segment.h"
#include "ipc/segment/spsc_ring.h"
#include "kernels/core/calls.h"
#include "kernels/core/sequence_round.h"

namespace specd {

// A completion in the engine's private memory, valid until the next Poll.
struct CompletionView {
  SubmissionKind kind = SubmissionKind::kRound;
  uint64_t round_id = 0;
  uint64_t submit_ns = 0;
  uint64_t taken_ns = 0;
  uint64_t done_ns = 0;
  bool malformed = false;  // the daemon could not read the submission: results is empty
  std::span<const SequenceResult> results;  // of a round, kScore or kForcedTokens
  std::span<const DraftResult> children;    // of kSampleDraft
  absl::Status refusal;                     // why a call was refused; all else is then empty
};

// The size of a round, for which its results need room.
struct RoundSize {
  uint32_t num_sequences = 0;
  uint32_t max_nodes = 0;  // of the longest draft
};

enum class PushResult { kOk, kFull, kBroken };

class EngineChannel {
 public:
  // The segment must outlive the channel and must be fresh: positions start at 0.
  explicit EngineChannel(Segment* segment);

  // Copies the round into the segment, publishes it and rings. kFull: ring_depth rounds are in
  // flight. kBroken: see fault(). REQUIRES: at most max_batch inputs, and WriteDraft's
  // requirements.
  PushResult Submit(uint64_t round_id, std::span<const SequenceInput> inputs, uint64_t submit_ns);

  // ---- rounds on a CUDA stream. The caller arms the words, enqueues the operations of
  // ipc/segment/round_words.h on its CUDA stream, and then submits. The daemon takes the round once
  // its rows are ready.

  // The number that the next submission gets.
  uint64_t next_number() const { return submissions_.position() + 1; }
  // kOk: Submit will take another round. The daemon cannot change this meanwhile.
  PushResult CheckRoom();
  // Marks the rows of the next round as not ready. The code that enqueues the round sets `passed`
  // to number - 1, but only once the CUDA stream holds some of it. Until then the word says whether
  // the last round of this ring entry has passed. REQUIRES: there is room. CUDA streams have passed
  // all earlier work for this ring entry, or this round comes after that work on its CUDA stream.
  void ArmWords();
  PushResult SubmitOnStream(uint64_t round_id, std::span<const SequenceInput> inputs,
                            uint64_t submit_ns);
  // The session goes on at another daemon: the segment has been replaced by a fresh one of the same
  // limits. What was in flight in `old`, and its unread completions too, is submitted again there.
  // The last results stay valid. REQUIRES: no round on a CUDA stream awaits its answer.
  void MoveFrom(const Segment& old);
  // Says that the daemon will answer nothing more. Rounds on CUDA streams without a completion are
  // aborted.
  void SetDaemonGone() { daemon_gone_ = true; }
  bool daemon_is_gone() const { return daemon_gone_; }

  // Submits a round for a verifier in this process, which stages it for a CUDA graph of the engine.
  PushResult SubmitStaged(uint64_t round_id, std::span<const SequenceInput> inputs,
                          uint64_t submit_ns) {
    return Push(round_id, inputs, submit_ns, kSubmissionStaged);
  }

  // The same for a call. kFull: a round or another call is in flight. REQUIRES: at most max_batch
  // calls (kCallCoinsMax coins).
  PushResult Call(std::span<const DraftInput> calls, uint64_t submit_ns);
  PushResult Call(std::span<const ScoreInput> calls, uint64_t submit_ns);
  PushResult Call(std::span<const ForcedInput> calls, uint64_t submit_ns);
  PushResult Call(const CoinsCall& call, uint64_t submit_ns);

  // Takes the oldest completion if there is one. False: there is none, or the channel is broken
  // (see fault()). If a round on a CUDA stream was aborted, the channel makes its completion at
  // once. The round's ring entry stays in flight until the daemon's own completion comes, which is
  // dropped. A late daemon thus meets no newer round there.
  bool Poll(CompletionView* out);

  // The size of the round that Poll answers next; zeros if there is none.
  RoundSize NextRound() const;

  // Returns true if Poll would find a completion or a fault. It stays true after a fault, so that
  // no thread waits for a daemon that broke the protocol. If the channel has answered all that is
  // in flight, it returns true when a ring entry has become free.
  bool HasCompletion() const;
  bool WaitCompletion(const WaitOptions& options) const;

  uint32_t rounds_in_flight() const { return call_in_flight() ? 0 : in_flight_; }
  bool in_flight() const { return in_flight_ > 0; }
  // Tells whether anything in flight has not been answered by Poll.
  bool awaits_answers() const { return in_flight_ > answered_early_; }
  // Of these, whether the next one is a round on a CUDA stream.
  bool awaits_stream_answer() const {
    return awaits_answers() && !call_in_flight() && SentOf(next_answer()).on_stream;
  }
  // Frees the ring entries of rounds that were answered here and that the daemon has finished with.
  void FreeEntries() { (void)DropLateAnswers(); }
  bool call_in_flight() const {
    return in_flight_ > 0 && in_flight_kind_ != SubmissionKind::kRound;
  }
  SequenceState ReadState(uint32_t slot) const;  // REQUIRES: slot < max_sequences
  // Returns the sum of the end that `state` names, which is valid once the sequence has finished.
  // REQUIRES: `state` came from ReadState(slot), and the sequence has not been closed since.
  double ReadLogprob(uint32_t slot, const SequenceState& state) const;
  // True if nothing will move the end that `state` names. REQUIRES: as ReadLogprob.
  bool IsFinal(uint32_t slot, const SequenceState& state) const;
  DaemonState daemon_state() const;
  // True once the daemon was told to stop, also after its end.
  bool daemon_was_drained() const;
  void SetState(EngineState state);
  ChannelFault fault() const { return fault_; }
  Doorbell completion_bell() const;  // to wake a WaitCompletion from this process

 private:
  // The fields of a ring entry that describe its payload.
  struct Payload {
    SubmissionKind kind = SubmissionKind::kRound;
    uint64_t offset = 0;
    uint32_t bytes = 0;
    uint32_t num_records = 0;
    uint32_t flags = 0;
    uint32_t max_nodes = 0;
  };

  // Private memory of results. Memory that no answer needs is never touched. A call does not change
  // the results of the last round.
  struct Received {
    std::unique_ptr<char[]> payload;
    std::vector<SequenceResult> results;
  };

  // The data from which the channel answers an aborted round.
  struct Sent {
    uint64_t round_id = 0;
    uint64_t submit_ns = 0;
    RoundSize size = {};
    bool on_stream = false;
  };

  PushResult Push(uint64_t round_id, std::span<const SequenceInput> inputs, uint64_t submit_ns,
                  uint32_t flags);
  void Publish(const Payload& payload, uint64_t round_id, uint64_t submit_ns);
  // Of the next round.
  uint64_t PayloadOffset() const {
    return uint64_t{submissions_.entry_index()} * segment_->limits().max_batch *
           segment_->layout().draft_record_bytes;
  }
  Sent& SentOf(uint64_t number) { return sent_[(number - 1) % sent_.size()]; }
  const Sent& SentOf(uint64_t number) const { return sent_[(number - 1) % sent_.size()]; }
  // The number of the submission that Poll answers next, if there is one.
  uint64_t next_answer() const { return completions_.position() + 1 + answered_early_; }
  uint64_t* SequencesOf(uint64_t number);
  bool IsNextAborted() const;
  // Drops late completions of rounds that were answered here; returns the ring's state after that.
  RingState DropLateAnswers();
  void AnswerAborted(CompletionView* out);
  template <class Calls>
  PushResult SubmitCall(SubmissionKind kind, const Calls& calls, size_t num_records,
                        uint64_t submit_ns);
  bool CopyPayload(const CompletionEntry& entry, CompletionView* out);
  bool CopyResults(uint64_t payload_offset, uint32_t num_records, Received* to);
  bool CopyChildren(uint32_t num_records);

  Segment* segment_;
  RingProducer<SubmissionEntry> submissions_;
  RingConsumer<CompletionEntry> completions_;
  uint32_t in_flight_ = 0;
  uint32_t answered_early_ = 0;  // this many of the oldest were aborted and answered here
  bool daemon_gone_ = false;
  SubmissionKind in_flight_kind_ = SubmissionKind::kRound;  // of everything in flight
  ChannelFault fault_ = ChannelFault::kNone;
  Received rounds_;
  Received calls_;
  std::vector<DraftResult> children_;
  std::vector<Sent> sent_;                      // by ring entry
  std::unique_ptr<uint64_t[]> sent_sequences_;  // max_batch for each ring entry, for rounds on CUDA
                                                // streams
};

}  // namespace specd
