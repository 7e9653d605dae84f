// PlaceEditor: what one place of a draft adds to the edits of its sequence.
//
// Processors ban, bias or force; the draft prefix is counted. Finish gives the place's overrides:
// the sequence's entries of the same ids with these additions, sorted by id. The entries live in a
// pool of the sequence that has room for the most any place may add, so nothing is ever dropped and
// nothing is allocated. Used for one place and thrown away.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/round.h"
#include "speculative/fixed_list.h"
#include "speculative/token_edits.h"

namespace specd {

class PlaceEditor {
 public:
  // Appends at most `room` entries to the pool. Both must outlive the editor.
  PlaceEditor(const TokenEdits* edits, int32_t vocab_size, size_t room, FixedList<TokenEdit>* pool);

  // ---- for processors. REQUIRES: the id is inside the vocabulary.
  void Ban(TokenId id) { Add({.id = id, .flags = kEditBanned}); }
  // Added where logit_bias is (step 2), so that the penalties see the sum.
  void AddBias(TokenId id, float bias) { Add({.id = id, .bias = bias}); }
  // The id is the only token of this place, over every step before. The last call stands.
  void Force(TokenId id);

  // ---- for RowRules.
  // A token of the draft prefix, where penalties count.
  void Count(TokenId id) { Add({.id = id, .flags = kEditSeen, .count = 1}); }
  // Makes the entries of one id one.
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
};

}  // namespace specd
