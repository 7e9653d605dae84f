// SequenceBook follows the sequences of a trace for the commands: who opened them, and what became
// of them.
//
// Give it every record in order, from the info on. It keeps a few words for each sequence, and no
// rounds. A command that asks for no sequence after its close gives Keep::kOpen, so that its memory
// does not grow with the trace. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "daemon/trace/trace_record.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {

struct SequenceEntry {
  TraceOpening opening;  // request_id is empty if the file began later and does not name it
  bool has_opening = false;
  uint64_t first_round = 0;  // 0: none yet
  uint64_t last_round = 0;
  uint64_t num_rounds = 0;
  uint64_t num_drafted = 0;          // draft tokens before the end of each draft
  uint64_t num_accepted = 0;         // of these, as answered: without those dropped at the end
  uint64_t num_judged_accepted = 0;  // as the method judged
  uint64_t num_kept = 0;
  uint32_t total_kept = 0;
  FinishReason reason = FinishReason::kNone;
  bool has_ended = false;
  RoundStatus last_status = RoundStatus::kOk;
  bool had_rejection = false;
};

class SequenceBook {
 public:
  enum class Keep { kAll, kOpen };

  explicit SequenceBook(Keep keep = Keep::kAll) : keep_(keep) {}

  void Take(const TraceItem& item);

  // The sequences of all records, with those that were forgotten; `ended` counts by reason.
  struct Counts {
    uint64_t num_sequences = 0;
    std::map<FinishReason, uint64_t> ended;
  };
  Counts Count() const;

  // In the order of their first record. REQUIRES: Keep::kAll.
  const std::vector<SequenceEntry>& entries() const { return entries_; }
  // Null if no record named the sequence.
  const SequenceEntry* Find(SequenceHandle sequence) const;
  // Its request id, or "".
  std::string_view RequestOf(SequenceHandle sequence) const;
  int32_t vocab_size() const { return vocab_size_; }
  // NumDrawn (below) with the vocabulary of the trace.
  uint32_t NumDrawnOf(const TraceTask& task) const;
  // The index in entries(); the entry is made if there is none.
  size_t IndexOf(SequenceHandle sequence);

 private:
  void Take(const TraceOpening& opening);
  void Take(const TraceEnd& end);
  void Take(const TraceRound& round);
  // Forgets the sequence with Keep::kOpen.
  void Close(SequenceHandle sequence);

  const Keep keep_;
  int32_t vocab_size_ = 0;
  std::vector<SequenceEntry> entries_;
  std::unordered_map<SequenceHandle, size_t> indices_;
  std::vector<size_t> free_;  // the places of forgotten sequences in entries_
  Counts forgotten_;
};

// The draft tokens that were verified: the first id outside the vocabulary, such as -1, ends the
// draft, and in a tree its own branch.
uint32_t NumDrawn(const TraceTask& task, int32_t vocab_size);

// The handle was none of an open sequence: stale, or never given out.
bool NamesNoSequence(const TraceAnswer& answer);

// False if the round was called off, or the backend had no room for the task: then no draft token
// was accepted or rejected.
bool HasOutcome(const TraceRound& round, const TraceTask& task);

// The draft tokens of a chain that were judged one after the other: the accepted ones and the one
// after them. One whose row was bad was not judged.
uint32_t NumReached(const TraceTask& task, uint32_t num_drawn);

// The answer of a task; null if the record is not consistent.
const TraceAnswer* AnswerOf(const TraceRound& round, const TraceTask& task);

}  // namespace specd::replay
