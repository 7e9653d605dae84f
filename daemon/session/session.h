// Session serves one attached engine: its shared memory, bound rows, sequences and events.
//
// The daemon has one session per connection; embedded mode has one in the engine's own process.
// Its callers are the control thread (binds, opens, closes), the threads of long openings, the
// verify thread (StepPiece) and the publisher thread (PopEvent, the two FromText). One lock per
// session orders their work (daemon/session/session_state.h). Events leave through a lock-free
// queue. SessionMemory, SessionRanks, SessionSequences, SessionRounds and SessionCalls do the work.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/join_token.h"
#include "daemon/session/opening_rate.h"
#include "daemon/session/regions.h"
#include "daemon/session/session_calls.h"
#include "daemon/session/session_memory.h"
#include "daemon/session/session_ranks.h"
#include "daemon/session/session_rounds.h"
#include "daemon/session/session_sequences.h"
#include "daemon/session/session_state.h"
#include "daemon/session/session_use.h"
#include "daemon/session/tensor_role.h"
#include "ipc/base/unique_fd.h"

namespace specd {

class Session {
 public:
  static absl::StatusOr<std::shared_ptr<Session>> Create(const SessionOptions& options,
                                                         std::unique_ptr<Backend> backend);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // ---- control thread

  absl::StatusOr<uint32_t> RegisterRegion(UniqueFd fd, uint64_t size_bytes) {
    return memory_.Register(std::move(fd), size_bytes);
  }
  // Embedded mode: Regions::Lend.
  absl::StatusOr<uint32_t> LendRegion(const RowMemory& memory) {
    return memory_.regions().Lend(memory);
  }
  absl::Status UnregisterRegion(uint32_t region) { return memory_.Unregister(region); }
  Regions& regions() { return memory_.regions(); }
  DeviceRegions& device_regions() { return memory_.regions().device(); }
  absl::Status Bind(TensorRole role, uint32_t region, const TensorSpec& spec) {
    return ranks_.BindOwn(role, region, spec);
  }
  // Ranks that are processes of their own (daemon/session/member_session.h).
  SessionRanks& ranks() { return ranks_; }

  // Any thread; the session may end meanwhile, and the opening is then refused.
  absl::StatusOr<std::vector<SequenceInfo>> OpenSequences(const std::string& request_id,
                                                          const SequenceParams& params,
                                                          const SequenceHistory& history = {}) {
    return sequences_.Open(request_id, params, history);
  }
  // The same in two steps, for several openings and for pending ones: SessionSequences.
  const OpeningBuilder& opening_builder() const { return sequences_.builder(); }
  absl::StatusOr<std::vector<SequenceInfo>> OpenPrepared(PreparedSequences prepared,
                                                         size_t* refused) {
    return sequences_.OpenPrepared(std::move(prepared), refused);
  }
  void BuildPending(const PendingOpening& opening) { sequences_.BuildPending(opening); }
  void FailPending(const PendingOpening& opening, const absl::Status& why) {
    sequences_.FailPending(opening.sequences, why);
  }
  absl::StatusOr<SequenceInfo> FindOpened(SequenceHandle sequence) {
    return sequences_.FindOpened(sequence);
  }

  absl::StatusOr<SequenceInfo> ForkSequence(SequenceHandle source, const std::string& request_id,
                                            std::optional<uint64_t> seed) {
    return sequences_.Fork(source, request_id, seed);
  }
  absl::Status CloseSequence(SequenceHandle sequence) { return sequences_.Close(sequence); }
  absl::Status AbortSequence(SequenceHandle sequence) { return sequences_.Abort(sequence); }
  // For an operator: SessionSequences. Any thread.
  std::vector<SequenceFacts> ListSequences(const SequenceFilter& filter, uint32_t first_slot,
                                           size_t max) {
    return sequences_.List(filter, first_slot, max);
  }
  uint32_t AbortMatching(const SequenceFilter& filter) { return sequences_.AbortMatching(filter); }
  uint32_t CountRunning() { return sequences_.CountRunning(); }
  SessionUse Use() ABSL_LOCKS_EXCLUDED(state_.mutex);
  // The thread that answers the engine's messages asks for openings and counts them.
  OpeningRate& opening_rate() { return opening_rate_; }
  // A message of the engine was refused.
  void CountRefusal() { num_refusals_.fetch_add(1, std::memory_order_relaxed); }
  // The engine. Set once, before another thread knows the session.
  void SetClient(SessionClient client) { client_ = std::move(client); }
  const SessionClient& client() const { return client_; }
  // Embedded mode: SessionSequences::TextOf.
  absl::StatusOr<SessionSequences::Text> TextOf(SequenceHandle sequence) {
    return sequences_.TextOf(sequence);
  }
  // Ends every open sequence and takes no more rounds. The engine is gone or broken, or the daemon
  // stops. False if the session had ended before. Any thread.
  bool End();
  // Ends the session, and unmaps the engine's device memory even if the session had ended. The call
  // waits for the driver. The verify thread must not call it, because other engines would wait too.
  bool EndAll();
  // The daemon stops: the session takes no new rounds.
  void Drain();

  // ---- verify thread (in embedded mode: the engine's thread)

  // Takes at most one round or call, or runs its next piece (RoundPieces). A round that is to be
  // staged is staged, and a later step answers it. Between two pieces the lock is free, and
  // IsWanted() tells whether a thread waits for it: that thread goes first. False if there was
  // nothing to take, or no room for the events of a round. is_alone: no other session waits, and
  // the pieces are larger.
  bool StepPiece(bool is_alone = false);
  // A page of the engine's memory was missing: the session ends with the round that needed it.
  bool has_faulted() const { return state_.has_faulted.load(std::memory_order_relaxed); }
  bool is_between_pieces() const { return state_.between_pieces.load(std::memory_order_relaxed); }
  bool IsWanted() const { return state_.mutex.IsWanted(); }
  // The daemon stops: answers a round or call that has pieces left. Nothing of it is kept, and its
  // sequences can be verified again. If the next daemon is to run it, the session ends instead.
  void CallOffRound();

  // Does a part of the work of a round that waits for its rows, so that the round ends sooner. The
  // answer does not depend on it. False if nothing is left to do.
  bool Prepare();

  // If the engine is this process: SessionRounds.
  absl::Status MarkDrafts(void* stream, uint64_t number) {
    return rounds_.MarkDrafts(stream, number);
  }
  // Rounds inside the engine's CUDA graph, likewise.
  absl::Status CheckStaging() { return rounds_.CheckStaging(); }
  absl::Status EnqueueStaged(void* stream, uint32_t num_sequences) {
    return rounds_.EnqueueStaged(stream, num_sequences);
  }

  // True after a round or a call was answered with a device error. A daemon then ends, to be
  // restarted. In embedded mode the cause may be a capture of cuda_stream, and later rounds may
  // succeed.
  bool device_failed() const { return state_.device_failed.load(std::memory_order_relaxed); }
  // The reason of the last such answer, in words; empty if there was none.
  std::string WhyDeviceFailed() ABSL_LOCKS_EXCLUDED(state_.mutex);

  // Writes the session's trace, or what its flight recorder has, and returns the file. Waits for
  // the disk, within a bound, and takes no lock. Any thread.
  absl::StatusOr<TraceDump> DumpTrace();

  // ---- publisher thread

  bool PopEvent(SequenceHandle* sequence, TokenEvent* event);
  // True if the session has ended and every event has been popped.
  bool Drained() const { return ended() && (state_.events == nullptr || state_.events->empty()); }
  // Ends a stream for the text side: a stop string completed with token number kept_tokens, or the
  // text is no longer wanted.
  void FinishFromText(SequenceHandle sequence, FinishReason reason, uint32_t kept_tokens);
  // The text side will say nothing more about a sequence with stop strings. If it has ended, its
  // end is final. False if it still runs.
  bool SettleFromText(SequenceHandle sequence);

  // Any thread. Pairs with the release in End: a caller that sees the end finds the events before
  // the end.
  bool ended() const { return state_.ended.load(std::memory_order_acquire); }

  Segment& segment() { return state_.segment; }
  DaemonChannel& channel() { return state_.channel; }
  const SessionOptions& options() const { return state_.options; }
  // For the memory of the session's ranks.
  Regions::Host regions_host() { return state_.regions_host(); }
  // How many events wait for PopEvent.
  size_t num_queued_events() const { return state_.events == nullptr ? 0 : state_.events->size(); }
  // Any thread; takes no lock.
  Counters counters() const { return state_.counters.Read(); }
  MemoryBudget* memory() { return state_.memory.get(); }

 private:
  Session(const SessionOptions& options, SessionBudget budget, Segment segment,
          std::unique_ptr<Verifier> verifier);

  // The round or call that has pieces left, if there is one.
  void RunNextPiece() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void CallOffPieces() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void DropPieces() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // End, once it is known that the session runs.
  void EndNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Has every round shown to options.recorder.
  void StartTrace(const VerifierOptions& options, MemoryShare memory)
      ABSL_LOCKS_EXCLUDED(state_.mutex);

  SessionClient client_;
  OpeningRate opening_rate_;
  std::atomic<uint64_t> num_refusals_{0};  // a sum that orders nothing
  const int64_t attached_ns_;
  SessionState state_;
  SessionMemory memory_;
  SessionRanks ranks_;
  SessionSequences sequences_;
  SessionRounds rounds_;
  SessionCalls calls_;
  SubmissionCopy submission_ ABSL_GUARDED_BY(state_.mutex);  // of the current step
  Counters metered_ ABSL_GUARDED_BY(state_.mutex);           // what options.meters has of them
};

}  // namespace specd
