// What steps 1 to 6 of CONTRACT §3 do to the rows of a sequence: edits of single ids that hold for
// every row, and those that one place of a draft adds. Plain data.
#pragma once

#include <cstdint>

#include "kernels/core/types.h"

namespace specd {

// What steps 1 to 6 do to one id. A list of edits is sorted by id, with one entry for each id.
enum EditFlags : uint32_t {
  kEditSeen = 1,        // occurs in prompt, output or draft prefix: the repetition penalty applies
  kEditDisallowed = 2,  // step 1: -inf whatever the row holds
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

// Does it matter which tokens were given out, and how often?
SPECD_INLINE constexpr bool Counts(const Penalties& penalties) {
  return penalties.repetition != 1 || penalties.frequency != 0 || penalties.presence != 0;
}

// What holds for every row of a sequence.
struct SequenceEdits {
  const TokenEdit* edits = nullptr;
  int32_t num_edits = 0;
  const uint32_t* allowed = nullptr;  // allowed_token_ids as a mask row; null: all
  Penalties penalties;
};

// What holds for one row: the draft prefix, the place in the output.
struct PlaceEdits {
  const TokenEdit* overrides =
      nullptr;  // each stands in the place of the sequence's edit of its id
  int32_t num_overrides = 0;
  int32_t mask_row = -1;          // of RoundBatch::mask; -1: unconstrained
  bool below_min_tokens = false;  // step 3 applies
  TokenId forced = kNoToken;      // step 6: the only token, over every step above
};

}  // namespace specd
