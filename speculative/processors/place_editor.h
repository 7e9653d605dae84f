// PlaceEditor collects the edits that one place of a draft adds to those of its sequence.
//
// Processors ban, bias or force ids, and the tokens of the draft prefix are counted. Finish returns
// the place's overrides: the sequence's entries of the same ids with these additions, sorted by id.
// The entries lie in a pool of the sequence with room for the most that any place may add. Nothing
// is dropped and nothing is allocated. Make one for each place. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/round.h"
#include "speculative/processors/fixed_list.h"
#include "speculative/processors/token_edits.h"

namespace specd {

class PlaceEditor {
 public:
  // Appends at most `room` entries to the pool. Both must outlive the editor.
  PlaceEditor(const TokenEdits* edits, int32_t vocab_size, size_t room, FixedList<TokenEdit>* pool);

  // ---- for processors. REQUIRES: the id is inside the vocabulary.
  void Ban(TokenId id) { Add({.id = id, .flags = kEditBanned}); }
  // Adds a bias where logit_bias is added (step 2), so that the penalties see the sum.
  void AddBias(TokenId id, float bias) { Add({.id = id, .bias = bias}); }
  // Makes the id the only token of this place; no earlier step matters. The last call wins.
  void Force(TokenId id);
  // Says that a thought is open at this place.
  void NoteThought() { in_thought_ = true; }

  // ---- for RowRules.
  // Counts a token of the draft prefix for the penalties.
  void Count(TokenId id) { Add({.id = id, .flags = kEditSeen, .count = 1}); }
  // Merges the entries of each id into one.
  void Merge();
  PlaceEdits Finish();

 private:
  void Add(const TokenEdit& edit);

  const TokenEdits* edits_;
  const int32_t vocab_size_;
  const size_t room_;
  const size_t begin_;  // where this place's entries begin in the pool
  FixedList<TokenEdit>* pool_;
  TokenId forced_ = kNoToken;
  bool in_thought_ = false;
};

}  // namespace specd
