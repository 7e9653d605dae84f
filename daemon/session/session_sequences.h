// SessionSequences keeps the open sequences of one session as other processes know them.
//
// It holds the names of the sequences, their stream numbers, the words that the engine reads, and
// the events of openings and ends. Opening has two steps. The long work is done without the
// session's lock (opening_builder.h). Then the lock is taken, and the built sequences get their
// slots. Once they have them nothing takes memory, so an opening that finds no memory leaves
// nothing. A pending sequence gets its slot first and is built later (pending_openings.h); until
// then its rounds are answered NOT_READY. The control thread opens, forks, closes and aborts. A
// thread of OpeningThreads makes long openings (daemon/server/opening_threads.h). The publisher
// thread ends streams.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/opening_builder.h"
#include "daemon/session/pending_opening.h"
#include "daemon/session/sequence_facts.h"
#include "daemon/session/sequence_reports.h"
#include "daemon/session/session_state.h"

namespace specd {

class SessionSequences {
 public:
  explicit SessionSequences(SessionState* state);

  // Opens params.n sequences or none. Child i has seed + i and, from 1 on, the request id "ID#i".
  absl::StatusOr<std::vector<SequenceInfo>> Open(const std::string& request_id,
                                                 const SequenceParams& params,
                                                 const SequenceHistory& history);
  // Builds sequences for the next function, without a lock.
  const OpeningBuilder& builder() const { return builder_; }
  // Opens the sequences of all openings or none. If a name is in use, *refused is the index of the
  // sequence that wants it. A pending sequence has its slot and its name from now on.
  absl::StatusOr<std::vector<SequenceInfo>> OpenPrepared(PreparedSequences prepared,
                                                         size_t* refused);
  // Builds the sequences of an opening that are still pending, and opens or fails each of them.
  void BuildPending(const PendingOpening& opening);
  void FailPending(std::span<const SequenceHandle> handles, const absl::Status& why);
  // A sequence that is open, or the reason why it is not: it is pending, or its opening failed.
  absl::StatusOr<SequenceInfo> FindOpened(SequenceHandle sequence);
  // Copies a sequence between two rounds. The copy is made under the lock.
  absl::StatusOr<SequenceInfo> Fork(SequenceHandle source, const std::string& request_id,
                                    std::optional<uint64_t> seed);
  absl::Status Close(SequenceHandle sequence);
  absl::Status Abort(SequenceHandle sequence);

  // ---- for an operator

  // Facts about those that meet the filter, from this slot on, `max` at most.
  std::vector<SequenceFacts> List(const SequenceFilter& filter, uint32_t first_slot, size_t max);
  // Ends those of them that run; returns their number.
  uint32_t AbortMatching(const SequenceFilter& filter);
  uint32_t CountRunning();

  // The text that rounds make of a sequence. An error if they make none. The engine's thread alone
  // may use it, in embedded mode.
  struct Text {
    SequenceText* text = nullptr;
    FinishReason finish_reason = FinishReason::kNone;
  };
  absl::StatusOr<Text> TextOf(SequenceHandle sequence);

  // ---- under the lock

  // Ends a sequence for a reason that did not come from a round.
  void Finish(SequenceHandle sequence, FinishReason reason, uint32_t kept_tokens)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // The text side cannot move the sequence's end any more. False if the sequence still runs.
  bool Settle(SequenceHandle sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Gives back the memory of sequences that were closed between two pieces. Call it after a piece.
  void FreeClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    if (!state_.between_pieces) kept_memory_.clear();
  }
  // Ends every sequence, unless the next daemon will have them, and gives the names back.
  void FinishAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Writes the end that a round has brought into the word that the engine reads.
  void WriteEnd(const SequenceResult& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    reports_.WriteEnd(streams_[SlotOf(result.sequence)], result);
  }
  // Pushes the events of a result that kept tokens or ended its sequence.
  void Publish(const SequenceResult& result, int64_t time_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    reports_.Publish(result, time_ns, &streams_[SlotOf(result.sequence)]);
  }

 private:
  // Opens those of the built sequences that are still pending, each by itself.
  void FillPending(std::span<const SequenceHandle> handles, PreparedSequences prepared);
  void FailOne(SequenceHandle handle, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  bool IsPending(SequenceHandle handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  bool IsAnyPending(std::span<const SequenceHandle> handles);
  // Inserts all of them or none. After an error `built` has all of them again. REQUIRES: `opened`
  // is empty and has room for them.
  absl::Status InsertAll(std::vector<BuiltSequence>* built, std::vector<SequenceInfo>* opened)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // An error if the session has ended, or if the events of `count` more sequences have no room.
  absl::Status CheckRoom(size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Tells the engine and the text side about a sequence that was just opened. It takes no memory.
  void Announce(const SequenceInfo& info, AnnouncedSequence opening)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status AbortOpen(SequenceHandle sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void WriteState(const Sequence& sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    reports_.WriteState(streams_[SlotOf(sequence.handle)], sequence);
  }

  SessionState& state_;
  const OpeningBuilder builder_;
  SequenceReports reports_;
  std::vector<SequenceStream> streams_ ABSL_GUARDED_BY(state_.mutex);  // by slot
  std::vector<MemoryShare> memory_ ABSL_GUARDED_BY(state_.mutex);      // by slot
  // Why openings failed, until their sequences are closed.
  std::map<SequenceHandle, absl::Status> failures_ ABSL_GUARDED_BY(state_.mutex);
  // The shares of sequences that were closed between two pieces.
  std::vector<MemoryShare> kept_memory_ ABSL_GUARDED_BY(state_.mutex);
};

}  // namespace specd
