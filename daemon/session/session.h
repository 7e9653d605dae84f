// Session: one attached engine. Its shared memory, its bound rows, its sequences, its events.
//
// The daemon has one session per connection; embedded mode has one in the engine's own process.
// Three threads meet here: the control thread (binds, opens, closes), the verify thread (Step) and
// the publisher thread (PopEvent, FinishFromText). One lock per session orders their work
// (daemon/session/session_state.h). Events leave through a lock-free queue. The parts that do the
// work are SessionMemory, SessionRanks, SessionSequences, SessionRounds and SessionCalls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/join_token.h"
#include "daemon/session/regions.h"
#include "daemon/session/session_calls.h"
#include "daemon/session/session_memory.h"
#include "daemon/session/session_ranks.h"
#include "daemon/session/session_rounds.h"
#include "daemon/session/session_sequences.h"
#include "daemon/session/session_state.h"
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
  absl::Status UnregisterRegion(uint32_t region) { return memory_.Unregister(region); }
  Regions& regions() { return memory_.regions(); }
  DeviceRegions& device_regions() { return memory_.regions().device(); }
  absl::Status Bind(TensorRole role, uint32_t region, const TensorSpec& spec) {
    return ranks_.BindOwn(role, region, spec);
  }
  // Ranks that are processes of their own (daemon/session/member_session.h).
  SessionRanks& ranks() { return ranks_; }

  absl::StatusOr<std::vector<SequenceInfo>> OpenSequences(const std::string& request_id,
                                                          const SequenceParams& params,
                                                          const SequenceHistory& history = {}) {
    return sequences_.Open(request_id, params, history);
  }
  absl::StatusOr<SequenceInfo> ForkSequence(SequenceHandle source, const std::string& request_id,
                                            std::optional<uint64_t> seed) {
    return sequences_.Fork(source, request_id, seed);
  }
  absl::Status CloseSequence(SequenceHandle sequence) { return sequences_.Close(sequence); }
  absl::Status AbortSequence(SequenceHandle sequence) { return sequences_.Abort(sequence); }
  // Any thread. The engine is gone or broken, or the daemon stops: ends every open sequence and
  // takes no more rounds. False if that has happened before.
  bool End();
  // The same, and unmaps the engine's device memory even if the session had ended. That waits for
  // the driver, so it is not for the verify thread, which serves the other engines meanwhile.
  bool EndAll();

  // ---- verify thread (in embedded mode: the engine's thread)

  // Takes and answers at most one round or call; false if there was none, or no room for the events
  // of a round. A round that is to be staged is taken and staged, and answered by a later step.
  bool Step();

  // Rounds inside a graph of the engine's, where the engine is this process: SessionRounds.
  absl::Status CheckStaging() { return rounds_.CheckStaging(); }
  absl::Status EnqueueStaged(void* stream, uint32_t num_sequences) {
    return rounds_.EnqueueStaged(stream, num_sequences);
  }

  // A round or a call has been answered with a device error. A daemon ends then, to be restarted.
  // Embedded it may only have met a capture of cuda_stream, and later rounds are well.
  bool device_failed() const { return state_.device_failed.load(std::memory_order_relaxed); }
  // Why the last such answer was, in words; empty where none was.
  std::string WhyDeviceFailed() ABSL_LOCKS_EXCLUDED(state_.mutex);

  // ---- publisher thread

  bool PopEvent(SequenceHandle* sequence, TokenEvent* event);
  // Ended, and every event has been popped.
  bool Drained() const { return ended() && (state_.events == nullptr || state_.events->empty()); }
  // The text side ends a stream: a stop string completed with token number kept_tokens, or the text
  // is not wanted any more.
  void FinishFromText(SequenceHandle sequence, FinishReason reason, uint32_t kept_tokens);

  // Any thread. Pairs with the release in End: a caller that sees the end finds the events before
  // it.
  bool ended() const { return state_.ended.load(std::memory_order_acquire); }

  Segment& segment() { return state_.segment; }
  DaemonChannel& channel() { return state_.channel; }
  const SessionOptions& options() const { return state_.options; }
  VerifierCounters counters();

 private:
  Session(const SessionOptions& options, Segment segment, std::unique_ptr<Verifier> verifier);

  SessionState state_;
  SessionMemory memory_;
  SessionRanks ranks_;
  SessionSequences sequences_;
  SessionRounds rounds_;
  SessionCalls calls_;
  SubmissionCopy submission_ ABSL_GUARDED_BY(state_.mutex);  // of the current step
};

}  // namespace specd
