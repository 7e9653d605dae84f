// The open sequences of one session: a table of fixed capacity, indexed by slot.
//
// A handle is slot and generation; a slot that is closed and opened again has a new generation, so
// a late message for the old sequence finds nothing instead of the wrong stream. Not thread-safe:
// the session's lock guards it. The table itself is taken at construction; what a sequence holds is
// taken when it is opened and given back when it is closed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/core/round.h"
#include "kernels/core/sequence_round.h"
#include "speculative/finish_rules.h"
#include "speculative/logprob_sum.h"
#include "speculative/row_rules.h"

namespace specd {

// Generations come round: after the highest it is 1 again, because 0 marks a slot that was never
// used.
constexpr uint32_t NextGeneration(uint32_t generation) {
  return generation == kHandleGenerationMax ? 1 : generation + 1;
}

// One sequence. What is constant after opening comes first, then what rounds change. A copy is
// independent.
struct Sequence {
  SequenceHandle handle = 0;
  VerifyMethod method = VerifyMethod::kGreedy;  // kAuto: each round decides
  uint64_t seed = 0;
  float target_scale = 0;
  float draft_scale = 0;
  Filters target_filters;
  Filters draft_filters;
  bool draft_edits = false;
  ScoreRequest scores;  // but for `chosen`, which is logprob_token_ids wherever this struct lies
  std::vector<TokenId> logprob_token_ids;
  int64_t min_tokens = 0;
  int64_t max_tokens = 0;
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;
  // The first parameter that rows of final probabilities cannot honour; empty: none.
  std::string_view target_change;
  std::string_view draft_change;

  RowRules rules;
  uint32_t kept_tokens = 0;  // those given when it was opened are counted
  LogprobSum logprob_sum;
  FinishReason finish_reason = FinishReason::kNone;
  TokenId stop_token = kNoToken;
  bool end_moved = false;  // a stop string has moved the end that finish_reason says
  // Tests and replay set these in the place of the keyed coins. A fork has none.
  std::vector<InjectedCoin> coins;
  uint64_t last_round = 0;  // the stamp of the last round or call it stood in; finds duplicates
};

class SequenceTable {
 public:
  explicit SequenceTable(uint32_t capacity);

  // The new sequence, with its handle set and everything else at its default; null when full.
  Sequence* Open();

  // False where the handle is unknown or stale. `removed` receives the sequence, so that its memory
  // can be given back where that may take long; null: it is given back here.
  bool Close(SequenceHandle handle, Sequence* removed = nullptr);

  // The stamp of a round or call that begins now.
  uint64_t NextStamp() { return ++stamp_; }

  // A held slot is not handed out again, though its sequence be closed: what is under way for that
  // one still writes by slot. REQUIRES: slot < capacity(); Release as often as Hold.
  void Hold(uint32_t slot) { ++slots_[slot].num_holds; }
  void Release(uint32_t slot);
  bool IsHeld(uint32_t slot) const { return slots_[slot].num_holds > 0; }

  // Null where the handle is unknown or stale.
  Sequence* Find(SequenceHandle handle);

  uint32_t capacity() const { return static_cast<uint32_t>(slots_.size()); }
  // Slots that are open or held.
  uint32_t num_taken() const { return capacity() - static_cast<uint32_t>(free_slots_.size()); }

  // Calls visit(Sequence&) for every open sequence, in slot order.
  template <class Visit>
  void ForEachOpen(Visit visit) {
    for (Slot& slot : slots_) {
      if (slot.open) visit(slot.sequence);
    }
  }

 private:
  struct Slot {
    Sequence sequence;
    uint32_t generation = 0;
    bool open = false;
    uint32_t num_holds = 0;
  };
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;  // a stack; the lowest slot is handed out first
  uint64_t stamp_ = 0;
};

}  // namespace specd
