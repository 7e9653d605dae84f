// SessionSequences keeps the open sequences of one session as other processes know them.
//
// It holds the names of the sequences, their stream numbers, the words that the engine reads, and
// the events of openings and ends. Opening has two steps. The long work (checks, token rules,
// prompt history, events) is done without the session's lock. Then the lock is taken, and the built
// sequences get their slots. Once they have them nothing takes memory, so an opening that finds no
// memory leaves nothing. The control thread opens, forks, closes and aborts. A thread of
// OpeningThreads makes long openings (daemon/server/opening_threads.h). The publisher thread ends
// streams.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/opening_checks.h"
#include "daemon/session/session_state.h"
#include "daemon/session/text_tail.h"

namespace specd {

class SessionSequences {
 public:
  // Sequences of one or more openings that are built and have no slots yet.
  class Prepared;

  explicit SessionSequences(SessionState* state);

  // Opens params.n sequences or none. Child i has seed + i and, from 1 on, the request id "ID#i".
  absl::StatusOr<std::vector<SequenceInfo>> Open(const std::string& request_id,
                                                 const SequenceParams& params,
                                                 const SequenceHistory& history);
  // The same in two steps, for several openings. Prepare does the part of an opening that needs no
  // lock, and appends its sequences. OpenPrepared opens the sequences of all openings or none. If a
  // name is in use, *refused is the index of the sequence that wants it.
  absl::Status Prepare(const std::string& request_id, const SequenceParams& params,
                       const SequenceHistory& history, Prepared* to) const;
  absl::StatusOr<std::vector<SequenceInfo>> OpenPrepared(Prepared prepared, size_t* refused);
  // Copies a sequence between two rounds. The copy is made under the lock.
  absl::StatusOr<SequenceInfo> Fork(SequenceHandle source, const std::string& request_id,
                                    std::optional<uint64_t> seed);
  absl::Status Close(SequenceHandle sequence);
  absl::Status Abort(SequenceHandle sequence);

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
  void WriteEnd(const SequenceResult& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Pushes the events of a result that kept tokens or ended its sequence.
  void Publish(const SequenceResult& result, int64_t time_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

 private:
  // As the request has them.
  struct Stops {
    std::vector<std::string> strings;
    std::vector<std::string> regex;
  };
  // A sequence as the text side knows it.
  struct Stream {
    bool include_stop = false;
    bool skip_special_tokens = true;
    bool has_logprobs = false;
    bool settled = false;    // nothing moves its end; true at once unless the text side may find a
                             // stop string
    bool is_inline = false;  // rounds find the stop strings
    uint64_t id = 0;
    std::string request_id = {};
    // Shared by samples and forks; null: none.
    std::shared_ptr<const Stops> stops = nullptr;
  };
  // A sequence that has no slot yet, and the bytes that it may use.
  struct Built {
    MemoryShare memory;
    Sequence sequence;
  };
  // The same sequence, as it will be announced.
  struct Opening {
    Stream stream;
    std::shared_ptr<TokenEvent> event = nullptr;    // null: the session has no events
    std::unique_ptr<TraceOpening> trace = nullptr;  // null: the session has no trace
  };

  absl::StatusOr<std::vector<Built>> Build(const SequenceParams& params,
                                           const SequenceHistory& history) const;
  // Inserts all of them or none. After an error `built` has all of them again. REQUIRES: `opened`
  // is empty and has room for them.
  absl::Status InsertAll(std::vector<Built>* built, std::vector<SequenceInfo>* opened)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // An error if the session has ended, or if the events of `count` more sequences have no room.
  absl::Status CheckRoom(size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Gives the sequences the text that rounds make.
  absl::Status BeginText(const SequenceParams& params, const TextTail& tail,
                         std::vector<Built>* built) const;
  Opening MakeOpening(const Stream& stream, const Sequence& sequence) const;
  // Gives the event of an opening the earlier ids that its text depends on.
  absl::Status AddTail(const TextTail& tail, std::shared_ptr<TokenEvent>* event) const;
  // Tells the engine and the text side about a sequence that was just opened. It takes no memory.
  void Announce(const SequenceInfo& info, Opening opening)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  absl::Status AbortOpen(SequenceHandle sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // The end of the sequence's stream.
  void PushEnd(const Sequence& sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void WriteState(const Sequence& sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  // Writes the words that the engine reads, the final one too if the end is settled.
  void WriteWords(SequenceHandle sequence, const SequenceState& word, double cumulative_logprob)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  SessionState& state_;
  const OpeningChecks checks_;
  std::vector<Stream> streams_ ABSL_GUARDED_BY(state_.mutex);      // by slot
  std::vector<MemoryShare> memory_ ABSL_GUARDED_BY(state_.mutex);  // by slot
  // The shares of sequences that were closed between two pieces.
  std::vector<MemoryShare> kept_memory_ ABSL_GUARDED_BY(state_.mutex);
};

class SessionSequences::Prepared {
 public:
  size_t size() const { return names_.size(); }
  void Reserve(size_t num_sequences) {
    built_.reserve(num_sequences);
    names_.reserve(num_sequences);
    openings_.reserve(num_sequences);
  }

 private:
  friend class SessionSequences;
  std::vector<Built> built_;
  std::vector<std::string> names_;
  std::vector<Opening> openings_;
};

}  // namespace specd
