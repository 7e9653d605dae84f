// Session: one attached engine. Its shared memory, its bound rows, its sequences, its events.
//
// The daemon has one session per connection; embedded mode has one in the engine's own process.
// Three threads meet here: the control thread (binds, opens, closes), the verify thread (Step) and
// the publisher thread (PopEvent, FinishFromText). One lock per session orders what they do to it;
// it is held for the length of a round or of a table update, and what takes longer (mapping a file,
// checking seals) is done before it is taken. Events leave through a lock-free queue.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/base/mutex.h"
#include "daemon/session/join_token.h"
#include "daemon/session/model_profile.h"
#include "daemon/session/regions.h"
#include "daemon/session/shared_names.h"
#include "daemon/session/stream_event.h"
#include "daemon/session/tensor_role.h"
#include "ipc/base/unique_fd.h"
#include "ipc/segment/round_channel.h"
#include "ipc/segment/segment.h"
#include "speculative/verifier.h"

namespace specd {

struct SessionOptions {
  SessionIdentity identity;
  SessionLimits limits;
  const ModelProfile* profile = nullptr;
  Clock* clock = nullptr;
  SharedNames* names = nullptr;
  int32_t threads = 1;                 // for a round; the results do not depend on it
  bool may_stage = false;              // the engine is this process: rounds may be staged
  bool publish_events = false;         // false: nobody would pop them, so none are made
  std::function<bool()> text_side;     // is somebody there who can find stop strings?
  DeviceImporter* importer = nullptr;  // of device memory; null: rounds run on the CPU
};

class Session {
 public:
  static absl::StatusOr<std::shared_ptr<Session>> Create(const SessionOptions& options,
                                                         std::unique_ptr<Backend> backend);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // ---- control thread

  absl::StatusOr<uint32_t> RegisterRegion(UniqueFd fd, uint64_t size_bytes);
  // Of host or device memory. Refused while a role is bound to it; once it has succeeded nobody
  // here touches the memory any more.
  absl::Status UnregisterRegion(uint32_t region);
  Regions& regions() { return regions_; }
  DeviceRegions& device_regions() { return regions_.device(); }
  absl::Status Bind(TensorRole role, uint32_t region, const TensorSpec& spec);

  // ---- session_ranks.cc: ranks that are processes of their own (daemon/session/member_session.h)

  // The token that lets a rank join, made when it is first asked for.
  absl::StatusOr<JoinToken> MakeToken();
  // Bit k: next tokens of rank k are bound, by the engine or by the rank itself.
  uint32_t bound_ranks();
  // Gives the rank its place, or says why it cannot have it.
  absl::Status TakeRank(const JoinToken& token, uint32_t rank);
  // REQUIRES: the rank has been taken. As Bind, of its next tokens, in the rank's memory.
  absl::Status BindRank(uint32_t rank, Regions& regions, uint32_t region, const TensorSpec& spec);
  // Frees the place. Once this has returned no round writes there.
  void LeaveRank(uint32_t rank);

  // params.n sequences or none: child i has seed + i and, from 1 on, the request id "ID#i".
  absl::StatusOr<std::vector<SequenceInfo>> OpenSequences(const std::string& request_id,
                                                          const SequenceParams& params,
                                                          const SequenceHistory& history = {});
  // A copy of a sequence as it stands between two rounds.
  absl::StatusOr<SequenceInfo> ForkSequence(SequenceHandle source, const std::string& request_id,
                                            std::optional<uint64_t> seed);
  absl::Status CloseSequence(SequenceHandle sequence);
  absl::Status AbortSequence(SequenceHandle sequence);
  // Any thread. The engine is gone or broken, or the daemon stops: ends what is open and takes no
  // more rounds. False if that has happened before.
  bool End();
  // The same, and unmaps the engine's device memory whoever ended the session. That waits for the
  // driver, so it is not for the verify thread, which serves the other engines meanwhile.
  bool EndAll();

  // ---- verify thread (in embedded mode: the engine's thread)

  // Takes and answers at most one round or call; false if there was none, or no room for the events
  // of a round. A round that is to be staged is taken and staged, and answered by a later step.
  bool Step();

  // ---- session_staging.cc: rounds inside a graph of the engine's, where the engine is this
  // process

  // Why no round can be staged in this session, as it is bound.
  absl::Status CheckStaging();
  // Enqueues on a stream of the engine's what runs the oldest staged round.
  absl::Status EnqueueStaged(void* stream, uint32_t num_sequences);

  // A round or a call has been answered with a device error. A daemon ends then, to be restarted.
  // Embedded it may only have met a capture of cuda_stream, and those after it are well.
  bool device_failed() const { return device_failed_.load(std::memory_order_relaxed); }
  // Why the last such answer was, in words; empty where none was.
  std::string WhyDeviceFailed() ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- publisher thread

  bool PopEvent(StreamEvent* event);
  // Ended, and every event has been popped.
  bool Drained() const { return ended() && (events_ == nullptr || events_->read_available() == 0); }
  // Somebody on the text side ends a stream: a stop string that completed with token number
  // kept_tokens, or nobody wants the text any more.
  void FinishFromText(SequenceHandle sequence, FinishReason reason, uint32_t kept_tokens);

  // Any thread. Pairs with the release in End: who sees the end finds the events before it.
  bool ended() const { return ended_.load(std::memory_order_acquire); }

  Segment& segment() { return segment_; }
  DaemonChannel& channel() { return channel_; }
  const SessionOptions& options() const { return options_; }
  VerifierCounters counters();

 private:
  Session(const SessionOptions& options, Segment segment, std::unique_ptr<Verifier> verifier);

  // What belongs to a slot besides the verifier's own state.
  struct Stream {
    uint64_t id = 0;
    std::string request_id;
    bool has_stop_strings = false;
    bool include_stop = false;
    bool skip_special_tokens = true;
    std::vector<InjectedCoin> coins;
  };

  // ---- session_memory.cc. The memory that a role is to be bound to, or why it cannot be.
  absl::StatusOr<RowMemory> MemoryOf(TensorRole role, uint32_t region, Regions& regions);
  absl::Status BindMemory(TensorRole role, const RowMemory& memory, const TensorSpec& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsJoined(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return (joined_ranks_ >> rank & 1) != 0;
  }
  // ---- session_sequences.cc
  absl::Status CheckText(const SequenceParams& params, const SequenceHistory& history) const;
  absl::Status CheckScores(const SequenceParams& params) const;
  // ---- session_calls.cc. A call is done as a whole or refused with the first request that has a
  // number outside its range, and then nothing was done.
  void AnswerCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SampleDraft() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Score() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From now on the sequence meets these coins in place of its own: for tests and replay.
  absl::Status SetCoins(const CoinsCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckDraftInput(const DraftInput& input) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckScoreInput(const ScoreInput& input) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The coins set for a sequence; none where the handle is nobody's.
  std::span<const InjectedCoin> CoinsOf(SequenceHandle sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<SequenceInfo>> OpenAll(const SequenceParams& params,
                                                    const SequenceHistory& history)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // An error where the session has ended, or its events have no room for `count` sequences more.
  absl::Status CheckRoom(size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells engine and text side of a sequence that was just opened.
  void Announce(SequenceHandle handle, const Stream& stream,
                const std::vector<std::string>& stop_strings) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void NoteFailure(RoundStatus status) {
    if (status == RoundStatus::kDeviceError) device_failed_.store(true, std::memory_order_relaxed);
  }
  // The records of a submission as the verifier takes them, in inputs_.
  std::span<const RoundInput> InputsOf(const SubmissionCopy& submission)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void VerifyRound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // With results_, one for each record.
  void AnswerRound(const SubmissionCopy& submission) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PublishRound(size_t num_results, int64_t time_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Backend and roles are such that rounds can be staged; else why not.
  absl::Status CheckBoundForStaging() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Stages the round that was just taken.
  void StageRound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers the oldest staged round; false if it has not been done, or there is none.
  bool CollectRound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StreamEvent EventFor(const Sequence& sequence, StreamEventKind kind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends an open sequence that still runs; an error where there is none.
  absl::Status Abort(SequenceHandle sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishFromOutside(SequenceHandle sequence, FinishReason reason, uint32_t kept_tokens)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteState(const Sequence& sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PushEvent(const StreamEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t EventRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after Create.
  const SessionOptions options_;
  Segment segment_;

  // Rounds are taken by the verify thread under mutex_; the engine's words in it are atomics.
  DaemonChannel channel_;

  Regions regions_;

  // Producer: whoever holds mutex_. Consumer: the publisher thread. Null without publish_events.
  std::unique_ptr<StreamEventQueue> events_;

  std::atomic<bool> device_failed_{false};
  std::atomic<bool> ended_{false};  // written under mutex_

  Mutex mutex_;
  std::unique_ptr<Verifier> verifier_ ABSL_GUARDED_BY(mutex_);
  struct BoundRegion {
    uint32_t id = 0;
    MemorySpace space = MemorySpace::kHost;
  };
  std::map<TensorRole, BoundRegion> bound_regions_ ABSL_GUARDED_BY(mutex_);
  std::string join_secret_ ABSL_GUARDED_BY(mutex_);     // empty: no token was asked for
  uint32_t joined_ranks_ ABSL_GUARDED_BY(mutex_) = 0;   // a bit for each
  uint32_t bound_members_ ABSL_GUARDED_BY(mutex_) = 0;  // of these, with memory
  RowLimits row_limits_ ABSL_GUARDED_BY(mutex_);
  std::vector<Stream> streams_ ABSL_GUARDED_BY(mutex_);  // by slot
  size_t num_coins_ ABSL_GUARDED_BY(mutex_) = 0;         // of all streams together

  // As they were taken, the oldest first; a ring, empty before EnqueueStaged.
  std::vector<SubmissionCopy> staged_ ABSL_GUARDED_BY(mutex_);
  size_t first_staged_ ABSL_GUARDED_BY(mutex_) = 0;
  bool can_stage_ ABSL_GUARDED_BY(mutex_) = false;  // EnqueueStaged has succeeded

  // Scratch of a round, and of a call.
  SubmissionCopy submission_ ABSL_GUARDED_BY(mutex_);
  std::vector<RoundInput> inputs_ ABSL_GUARDED_BY(mutex_);
  std::vector<RoundResult> results_ ABSL_GUARDED_BY(mutex_);
  std::vector<SequenceResult> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<DraftInput> draft_inputs_ ABSL_GUARDED_BY(mutex_);
  std::vector<DraftResult> draft_results_ ABSL_GUARDED_BY(mutex_);
  std::vector<ChildrenAnswer> children_ ABSL_GUARDED_BY(mutex_);
  std::vector<ScoreInput> score_inputs_ ABSL_GUARDED_BY(mutex_);
  std::vector<ScoreResult> score_results_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specd
