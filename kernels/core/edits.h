// SequenceEdits and PlaceEdits describe steps 1 to 6 of CONTRACT §3 for the rows of a sequence.
// Plain data.
//
// SequenceEdits hold for every row of the sequence. PlaceEdits are added for one place of a draft.
#pragma once

#include <cstdint>

#include "kernels/core/types.h"

namespace specd {

// The effect of steps 1 to 6 on one id. A list of edits is sorted by id and has one entry for each
// id.
enum EditFlags : uint32_t {
  kEditSeen = 1,        // occurs in prompt, output or draft prefix: the repetition penalty applies
  kEditDisallowed = 2,  // step 1: -inf for any value of the row
  kEditEnd = 4,         // step 3: an EOS or stop id, -inf while min_tokens is not reached
  kEditBanned = 8,      // steps 5 and 6: -inf
};
struct TokenEdit {
  TokenId id = 0;
  uint32_t flags = 0;
  float bias = 0;      // step 2
  uint32_t count = 0;  // step 4: occurrences in output and draft prefix
};

struct Penalties {
  float repetition = 1;
  float frequency = 0;
  float presence = 0;
};

// True if an edit depends on the output tokens or their counts.
SPECD_INLINE constexpr bool Counts(const Penalties& penalties) {
  return penalties.repetition != 1 || penalties.frequency != 0 || penalties.presence != 0;
}

// The edits of every row of a sequence.
struct SequenceEdits {
  const TokenEdit* edits = nullptr;
  int32_t num_edits = 0;
  const uint32_t* allowed = nullptr;  // allowed_token_ids as a mask row; null: all
  Penalties penalties;
};

// The edits of one row, which depend on the draft prefix and the place in the output.
struct PlaceEdits {
  // Each override replaces the sequence's edit of the same id.
  const TokenEdit* overrides = nullptr;
  int32_t num_overrides = 0;
  int32_t mask_row = -1;  // an index into RoundBatch::mask; -1: unconstrained
  // A mask row of specd's own grammar, beside which mask_row is -1; null: unconstrained. It lies in
  // host memory until a processor has copied it to its own.
  const uint32_t* grammar_mask = nullptr;
  bool below_min_tokens = false;  // step 3 applies
  TokenId forced = kNoToken;      // step 6: the only allowed token; overrides every step above
  bool in_thought = false;        // a thought is open (LossyRule::only_thoughts)

  SPECD_INLINE constexpr bool IsMasked() const { return mask_row >= 0 || grammar_mask != nullptr; }
};

}  // namespace specd
