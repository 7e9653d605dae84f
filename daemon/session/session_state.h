// SessionState holds the options, the segment, the verifier, the events and the lock for the parts
// of a session.
//
// Session (daemon/session/session.h) owns it. SessionMemory, SessionRanks, SessionSequences,
// SessionRounds and SessionCalls work on it. The lock is held for a piece of a round or for a table
// update.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/base/clock.h"
#include "daemon/base/memory_budget.h"
#include "daemon/base/mutex.h"
#include "daemon/metrics/meters.h"
#include "daemon/recorder/trace_recorder.h"
#include "daemon/session/event_queue.h"
#include "daemon/session/grammar_compilers.h"
#include "daemon/session/join_token.h"
#include "daemon/session/model_profile.h"
#include "daemon/session/regions.h"
#include "daemon/session/shared_names.h"
#include "ipc/memory/device_region.h"
#include "ipc/segment/daemon_channel.h"
#include "ipc/segment/segment.h"
#include "speculative/verifier.h"

namespace specd {

// What a Hello says of an engine that goes from daemon to daemon (HelloRequest).
struct SessionOrigin {
  bool resumes = false;
  uint32_t owner = 0;
  uint32_t generation = 0;
  std::optional<JoinToken> join_token = std::nullopt;
};

struct SessionOptions {
  SessionIdentity identity;
  SessionLimits limits;
  const ModelProfile* profile = nullptr;
  GrammarCompilers* grammars = nullptr;  // of the profile; null: constraints are refused
  Clock* clock = nullptr;
  SharedNames* names = nullptr;
  int32_t threads = 1;                 // of a round; the results do not depend on it
  int64_t piece_work = 0;              // VerifierOptions::piece_work
  bool may_stage = false;              // the engine is this process, so rounds may be staged
  bool allow_lossy = false;            // lossy methods may be named (CONTRACT §5)
  bool publish_events = false;         // false: no thread would pop events, so none are made
  std::function<bool()> text_side;     // true while a text side finds stop strings
  bool text_side_comes = false;        // one that is not there may come: a process of its own
  DeviceImporter* importer = nullptr;  // for device memory; null: rounds run on the CPU
  TraceRecorder* recorder = nullptr;   // outlives the session; null: nothing is recorded
  // The budget of all sessions, which it outlives; null: memory is not bounded.
  MemoryBudget* memory = nullptr;
  uint64_t memory_bytes_max = 0;  // of this session, with `memory`
  // Those of its model, which outlive the session and which the thread of its rounds writes; null:
  // nothing is metered.
  RoundMeters* meters = nullptr;
  SessionOrigin origin = {};
  uint32_t openings_per_second = 0;  // 0: not bounded
};

// The budget of a session, and the bytes that the session itself has taken from it.
struct SessionBudget {
  std::unique_ptr<MemoryBudget> budget;  // null: memory is not bounded
  MemoryShare share;
};

struct SessionState {
  SessionState(const SessionOptions& asked, Segment made, std::unique_ptr<Verifier> created,
               SessionBudget budget = {})
      : options(asked),
        memory(std::move(budget.budget)),
        memory_share(std::move(budget.share)),
        segment(std::move(made)),
        channel(&segment),
        opening(created->opening()),
        backend(created->backend()),
        counters(created->live_counters()),
        verifier(std::move(created)) {}

  // An error if the session has ended.
  absl::Status CheckRunning() const;

  // Constant after construction.
  const SessionOptions options;
  const std::unique_ptr<MemoryBudget> memory;  // null: not bounded
  const MemoryShare memory_share;              // of what Session::Create takes
  Segment segment;

  // The verify thread takes rounds under the lock. The engine's words in the channel are atomics.
  DaemonChannel channel;

  // Producer: the holder of the lock. Consumer: the publisher thread. Null without publish_events.
  std::unique_ptr<EventQueue> events;

  std::atomic<bool> device_failed{false};
  std::atomic<bool> ended{false};  // written under the lock
  // A round or call has begun and has pieces left. Written under the lock.
  std::atomic<bool> between_pieces{false};
  // The daemon stops, and the engine will go on with its sequences at the next one. Their ends are
  // that daemon's to tell, and rounds without an answer are asked of it again.
  std::atomic<bool> is_left{false};
  // A page of the engine's memory, or of a rank's, was missing when a round needed it. The values
  // that the round has read are void, and the session ends after the round. Written by a signal
  // handler.
  std::atomic<bool> has_faulted{false};

  Regions::Host regions_host() {
    return {.importer = options.importer, .memory = memory.get(), .has_faulted = &has_faulted};
  }

  // Parts of the verifier for any thread. The first two never change.
  const SequenceOpening& opening;
  const Backend& backend;
  const LiveCounters& counters;

  Mutex mutex;
  // Null: nothing is recorded. It outlives the verifier, which shows it the rounds.
  std::shared_ptr<SessionTrace> trace ABSL_GUARDED_BY(mutex);
  std::unique_ptr<Verifier> verifier ABSL_GUARDED_BY(mutex);
};

}  // namespace specd
