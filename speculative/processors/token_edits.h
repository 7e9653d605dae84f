// TokenEdits holds the edits that steps 1 to 5 of CONTRACT §3 make to single ids in every row of a
// sequence.
//
// It is one list sorted by id, with an entry for each special id: biased, disallowed, banned, an
// end while min_tokens lasts, or seen by a penalty. Memory grows with such ids and not with the
// vocabulary. A sequence without such parameters has an empty list. The list is built once from
// parameters, prompt and given outputs. A kept token changes or inserts one entry.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/round.h"
#include "speculative/params/params.h"
#include "speculative/processors/fixed_list.h"
#include "speculative/processors/token_history.h"

namespace specd {

// Sorts edits by id and merges those of one id: flags are united, biases and counts added. Returns
// how many remain at the front. Biases of one id are added in ascending order, so that the sum does
// not depend on their order.
size_t MergeEdits(std::span<TokenEdit> edits);

class TokenEdits {
 public:
  TokenEdits() = default;
  // REQUIRES: params passed ValidateParams; every id is inside the vocabulary.
  TokenEdits(const SequenceParams& params, std::span<const TokenId> eos_token_ids,
             const SequenceHistory& history, int32_t vocab_size);

  // Returns the entry of an id; an entry that does nothing if there is none.
  TokenEdit Get(TokenId id) const;

  // Counts a kept token. REQUIRES: counts(), and no more tokens than params.max_tokens.
  void Count(TokenId id);

  // Penalties are on: kept tokens and draft prefixes must be counted.
  bool counts() const { return counts_; }
  // No row is changed, now or later.
  bool empty() const { return edits_.empty() && allowed_.empty() && !counts_; }

  size_t size_bytes() const { return edits_.capacity_bytes() + allowed_.size() * sizeof(uint32_t); }

  std::span<const TokenEdit> edits() const { return {edits_.data(), edits_.size()}; }
  // Valid until the next Count.
  SequenceEdits view() const;

 private:
  bool counts_ = false;
  Penalties penalties_;
  std::vector<uint32_t> allowed_;  // allowed_token_ids as a mask row; empty: all
  FixedList<TokenEdit> edits_;
};

}  // namespace specd
