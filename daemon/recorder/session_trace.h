// SessionTrace records the rounds of one session: it copies each into a ring, from which the
// recorder's thread writes it to a file.
//
// The session calls it under its lock, from the thread that runs rounds and from those that open
// and end sequences. It waits for nothing, reads no file and, after construction, takes no memory.
// If the ring has no room for a round, the round's rows are left out; if there is still no room,
// the round. Both are counted. TraceRecorder makes the objects (daemon/recorder/trace_recorder.h).
//
//   trace->Taken({.round_id = id, .times = {.taken = now}});  // then the verifier's observer calls
//   while (verifier->RunPiece()) continue;
//   trace->Answered(results, now);
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/memory_budget.h"
#include "daemon/recorder/record_ring.h"
#include "daemon/recorder/round_copy.h"
#include "daemon/recorder/trace_options.h"
#include "daemon/trace/trace_record.h"
#include "ipc/segment/doorbell.h"
#include "kernels/backend.h"
#include "kernels/core/counters.h"
#include "speculative/round/round_observer.h"

namespace specd {

// The facts of a session that its files begin with.
struct TraceSession {
  uint64_t session_id = 0;
  std::string backend;
  std::string device = {};  // Backend::device_uuid; empty: the CPU
  BackendLimits limits;
  uint32_t max_sequences = 0;
  std::vector<TokenId> eos_token_ids;
};

// The kinds of records that SessionTrace hands to the writer through the ring.
enum class TraceKind : uint32_t {
  kRound = 1,    // a RoundCopy
  kOpening = 2,  // a pointer to a TraceOpening, which the writer owns from then on
  kEnd = 3,      // a TraceEnd
};

class SessionTrace : public RoundObserver {
 public:
  // `memory` is a share of SizeBytes, or none where memory is not bounded.
  SessionTrace(const TraceOptions& options, TraceSession session, Clock* clock,
               DoorbellLine* writer_bell, MemoryShare memory = {});
  ~SessionTrace() override;
  SessionTrace(const SessionTrace&) = delete;
  SessionTrace& operator=(const SessionTrace&) = delete;

  // What a session's trace may take: this object, the flight recorder, and the writer's part.
  static uint64_t SizeBytes(const TraceOptions& options, const BackendLimits& limits);

  // ---- the holder of the session's lock

  // A round was taken, or a staged round is about to be collected. If it is not ready yet, the next
  // call replaces this one. The round id, the times of submission, and the way it came are known.
  void Taken(const TraceRoundFacts& facts) { facts_ = facts; }
  // The answers as the engine gets them. Ends the record of the round.
  void Answered(std::span<const SequenceResult> results, int64_t answered_ns);

  // RoundObserver.
  void Begin(RoundBatch* batch) override;
  void Ran(const RanRound& round) override;
  void Committed(std::span<const SequenceResult> results,
                 std::span<const uint32_t> task_results) override;

  // The sequence has its handle, seed and method.
  void Opened(std::unique_ptr<TraceOpening> opening);
  void Ended(SequenceHandle sequence, FinishReason reason, uint32_t kept_tokens);
  void Closed(SequenceHandle sequence);
  // Nothing follows. The writer then finishes the files.
  void EndSession();

  const TraceSession& session() const { return session_; }

  // ---- the writer's thread

  RecordRing& ring() { return ring_; }
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Counts since the session began; each only grows.
  uint64_t dropped_rounds() const { return dropped_rounds_.value(); }
  uint64_t dropped_rows() const { return dropped_rows_.value(); }
  // Rounds whose rows the device did not give; not among dropped_rows.
  uint64_t unread_rows() const { return unread_rows_.value(); }
  uint64_t dropped_bytes() const { return dropped_bytes_.value(); }
  // The largest round that could never find room; 0: none.
  uint64_t too_large_bytes() const { return too_large_bytes_.load(std::memory_order_relaxed); }

 private:
  bool Wants(std::string_view request_id) const;
  bool WantsSlot(uint32_t slot) const { return slot < wanted_.size() && wanted_[slot] != 0; }
  // Selects the tasks to record. False: there is nothing to record.
  bool Select(const RoundBatch& batch);
  // Whether the round in progress should have rows or hashes.
  bool WantsRows() const {
    return options_.level > TraceLevel::kRounds && num_rounds_ % options_.every == 0;
  }
  // Reserves and copies at this level, into copy_. False: there is no room. copy_ is then null, and
  // also if the device did not give the rows.
  bool CopyRound(const RanRound& round, TraceLevel level);
  // The same with rows. Says why copy_ is null.
  NoRows CopyWithRows(const RanRound& round);
  void AddAnswer(const SequenceResult& result);
  // Makes the record of a round that was called off before it ran: it has answers only.
  void CopyCalledOff(std::span<const SequenceResult> results);
  void AddAnswers(std::span<const SequenceResult> results);
  void Wake(bool is_urgent);

  const MemoryShare memory_;  // goes back last, when the writer has taken all
  const TraceOptions options_;
  const TraceSession session_;
  Clock* const clock_;
  const Doorbell writer_bell_;
  RecordRing ring_;
  RoundCopier copier_;

  // By slot: whether the sequence is recorded.
  std::vector<uint8_t> wanted_;
  std::vector<PlaceDecision> decisions_;
  int32_t decisions_stride_ = 0;

  // The round in progress.
  TraceRoundFacts facts_;
  uint64_t num_rounds_ = 0;
  std::vector<uint32_t> selected_;   // tasks
  std::vector<uint32_t> answer_of_;  // by input of the round
  RoundCopy* copy_ = nullptr;        // in the ring, not yet published
  bool is_lost_ = false;             // it found no room
  bool is_skipped_ = false;          // it has no sequence that is recorded
  bool has_begun_ = false;           // the verifier has shown it

  std::atomic<bool> ended_{false};
  Counter dropped_rounds_;
  Counter dropped_rows_;
  Counter unread_rows_;
  Counter dropped_bytes_;
  std::atomic<uint64_t> too_large_bytes_{0};
};

}  // namespace specd
