// EngineChannel: the engine's end of a session's hot path. Rounds and calls go to the daemon,
// results come back.
//
// libspecd uses it inside the engine's process; DaemonChannel (ipc/segment/daemon_channel.h) is the
// other end, on the same Segment mapped in two processes (or once, in embedded mode). At most
// ring_depth rounds are in flight. Nothing here allocates after construction, and nothing blocks
// except the calls named Wait. Times are CLOCK_MONOTONIC nanoseconds that the caller reads. One
// thread at a time; any thread may call ReadState.
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
  std::span<const SequenceResult> results;  // of a round, or of kScore
  std::span<const DraftResult> children;    // of kSampleDraft
  absl::Status refusal;                     // why a call was refused; then there is nothing else
};

enum class PushResult { kOk, kFull, kBroken };

class EngineChannel {
 public:
  // The segment must outlive the channel, and must be fresh: positions start at 0.
  explicit EngineChannel(Segment* segment);

  // Copies the round into the segment, publishes it and rings. kFull: ring_depth rounds are in
  // flight. kBroken: see fault(). REQUIRES: as many
  // inputs as max_batch at most, and WriteDraft's.
  PushResult Submit(uint64_t round_id, std::span<const SequenceInput> inputs, uint64_t submit_ns);

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
  PushResult SubmitOnStream(uint64_t round_id, std::span<const SequenceInput> inputs,
                            uint64_t submit_ns);
  // The daemon will answer nothing more: rounds on streams that have no completion are aborted.
  void SetDaemonGone() { daemon_gone_ = true; }

  // A round for a verifier in this process, which stages it for a graph of the engine's.
  PushResult SubmitStaged(uint64_t round_id, std::span<const SequenceInput> inputs,
                          uint64_t submit_ns) {
    return Push(round_id, inputs, submit_ns, kSubmissionStaged);
  }

  // The same for a call. kFull: a round or another call is in flight. REQUIRES: as many as
  // max_batch (kCallCoinsMax coins), at most.
  PushResult Call(std::span<const DraftInput> calls, uint64_t submit_ns);
  PushResult Call(std::span<const ScoreInput> calls, uint64_t submit_ns);
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
    uint32_t num_inputs = 0;
    bool on_stream = false;
  };

  PushResult Push(uint64_t round_id, std::span<const SequenceInput> inputs, uint64_t submit_ns,
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
  std::vector<DraftResult> children_;
  std::vector<Sent> sent_;                      // by slot
  std::unique_ptr<uint64_t[]> sent_sequences_;  // max_batch for each slot, of rounds on streams
};

}  // namespace specd
