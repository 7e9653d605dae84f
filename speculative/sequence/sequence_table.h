// SequenceTable holds the open sequences of one session, in a table of fixed capacity indexed by
// slot.
//
// A handle is a slot, a generation and the table's owner. A slot that is closed and opened again
// has a new generation. A late message for the old sequence therefore finds nothing instead of the
// wrong sequence, and so does a handle of another table. The table itself is taken at construction.
// The memory of a sequence is taken when it is opened and given back when it is closed. Not
// thread-safe: the session's lock guards the table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/round.h"
#include "kernels/core/sequence_round.h"
#include "speculative/grammar/compiler/compiled_grammar.h"
#include "speculative/sequence/finish_rules.h"
#include "speculative/sequence/logprob_sum.h"
#include "speculative/sequence/row_rules.h"
#include "speculative/sequence/sequence_grammar.h"
#include "speculative/sequence/sequence_text.h"

namespace specd {

// Generations repeat: 1 follows the highest, because 0 marks a slot that was never used.
constexpr uint32_t NextGeneration(uint32_t generation) {
  return generation == kHandleGenerationMax ? 1 : generation + 1;
}

// A pending sequence has its slot and its seed, and nothing else before Verifier::Fill. If that
// fails, it has finished with an error. If it is aborted before, it is withdrawn and never filled.
enum class SequencePhase : uint8_t { kOpen, kPending, kFailed, kWithdrawn };

// One sequence. Members that are constant after opening come first, then those that rounds change.
// A copy is independent.
struct Sequence {
  SequenceHandle handle = 0;
  SequencePhase phase = SequencePhase::kOpen;
  VerifyMethod method = VerifyMethod::kGreedy;  // kAuto: each round decides
  uint64_t seed = 0;
  float target_scale = 0;
  float draft_scale = 0;
  Filters target_filters;
  Filters draft_filters;
  bool draft_edits = false;
  LossyRule lossy;           // except `rates`: a round sets it to those of this struct
  std::vector<float> rates;  // of `synthetic`
  Rng rng = Rng::kPhilox;
  uint32_t rng_offset = 0;
  ScoreRequest scores;  // except `chosen`: a round sets it to logprob_token_ids of this struct
  std::vector<TokenId> logprob_token_ids;
  int64_t min_tokens = 0;
  int64_t max_tokens = 0;
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;
  // The first parameter that rows of final probabilities cannot honour; empty: none.
  std::string_view target_change;
  std::string_view draft_change;

  RowRules rules;
  SequenceGrammar grammar;
  // The constraint that `grammar` follows, for its warnings(); null: there is none.
  std::shared_ptr<const grammar::CompiledGrammar> constraint;
  // No memory was left for masks, and nothing is known of the state of `grammar` any more. The next
  // commit ends the sequence, and keeps nothing.
  bool grammar_failed = false;
  SequenceText text;         // empty: its rounds make no text
  uint32_t kept_tokens = 0;  // includes the tokens given at opening
  LogprobSum logprob_sum;
  FinishReason finish_reason = FinishReason::kNone;
  TokenId stop_token = kNoToken;
  bool by_stop_string = false;  // a stop string ended it
  bool end_moved = false;       // the text side has moved the end of finish_reason
  // Coins that tests and replay set in place of the keyed coins. A fork has none.
  std::vector<InjectedCoin> coins;
  uint64_t last_round = 0;  // stamp of its last round or call; finds duplicates
};

// kOk if rounds and calls of the sequence run now; otherwise the answer to them.
inline RoundStatus RunningStatus(const Sequence& sequence) {
  if (sequence.phase == SequencePhase::kPending) return RoundStatus::kNotReady;
  return sequence.finish_reason == FinishReason::kNone ? RoundStatus::kOk : RoundStatus::kFinished;
}

// Says that a sequence has no state yet that a call could use.
std::string WhyPending(SequenceHandle handle);

// Says that a handle is not of the table or session that it was given to.
std::string WhyForeign(SequenceHandle handle);

class SequenceTable {
 public:
  // Generations begin after `generation`. REQUIRES: capacity <= kSlotsMax, owner <=
  // kHandleOwnerMax, generation <= kHandleGenerationMax.
  explicit SequenceTable(uint32_t capacity, uint32_t owner = 0, uint32_t generation = 0);

  // Returns the new sequence, with its handle set and everything else at its default; null when
  // full. If `handle` is not 0, the sequence gets that handle; null if CanOpenAs is false.
  Sequence* Open(SequenceHandle handle = 0);
  // True if the handle is this table's, and its slot is free.
  bool CanOpenAs(SequenceHandle handle) const;

  // Returns false if the handle is unknown or stale. `removed` receives the sequence, and the
  // caller gives back its memory where that may take long. If `removed` is null, Close gives the
  // memory back. If the slot is held, Release does.
  bool Close(SequenceHandle handle, Sequence* removed = nullptr);

  // Returns the stamp of a round or call that begins now.
  uint64_t NextStamp() { return ++stamp_; }

  // Holds a slot: it is not handed out again, even if its sequence is closed, and the sequence
  // stays where it is. Work for that sequence may still read it and write by slot. REQUIRES: slot <
  // capacity(); Release is called as often as Hold.
  void Hold(uint32_t slot) { ++slots_[slot].num_holds; }
  void Release(uint32_t slot);
  bool IsHeld(uint32_t slot) const { return slots_[slot].num_holds > 0; }

  // Returns null if the handle is unknown, stale or of another table. A pending sequence is found.
  Sequence* Find(SequenceHandle handle);

  // False if another table gave out the handle, or none.
  bool MayHaveGivenOut(SequenceHandle handle) const { return OwnerOf(handle) == owner_; }
  // Says why Find found nothing: "sequence 0x100020000 is not open", or that it is of another
  // table.
  std::string WhyNotFound(SequenceHandle handle) const;

  uint32_t capacity() const { return static_cast<uint32_t>(slots_.size()); }
  // The number of slots that are open or held.
  uint32_t num_taken() const { return capacity() - static_cast<uint32_t>(free_slots_.size()); }

  // Calls visit(Sequence&) for every open sequence, in slot order.
  template <class Visit>
  void ForEachOpen(Visit visit) {
    for (Slot& slot : slots_) {
      if (slot.open) visit(slot.sequence);
    }
  }

 private:
  void Free(uint32_t slot);

  struct Slot {
    Sequence sequence;
    uint32_t generation = 0;
    bool open = false;
    uint32_t num_holds = 0;
  };
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;  // a stack; the lowest slot is handed out first
  uint64_t stamp_ = 0;
  const uint32_t owner_;
};

}  // namespace specd
