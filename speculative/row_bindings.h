// RowBindings holds the tensors that the rounds of one session read and write, as they are bound
// now.
//
// Plain data; the session's lock guards it. A view owns nothing: the session keeps the memory
// mapped while a role is bound to it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "kernels/core/check.h"
#include "kernels/core/round.h"
#include "kernels/core/types.h"

namespace specd {

// The number of tensor-parallel ranks that may have next tokens of their own.
inline constexpr uint32_t kNextTokensMax = 8;

struct RowBindings {
  // A round without tensors may still bring argmax ids, which need the vocabulary size and no rows.
  explicit RowBindings(int32_t vocab_size) {
    target.vocab_size = vocab_size;
    draft.vocab_size = vocab_size;
  }

  // Binds an array of next tokens. After every round a sequence's last token lies at its slot in
  // each bound array.
  void BindNextTokens(uint32_t replica, const TokenArray& array) {
    SPECD_CHECK(replica < kNextTokensMax);
    replicas_[replica] = array;
    num_next_tokens_ = 0;
    for (const TokenArray& bound : replicas_) {
      if (bound.ids != nullptr) next_tokens_[num_next_tokens_++] = bound;
    }
  }
  std::span<const TokenArray> next_tokens() const {
    return {next_tokens_.data(), num_next_tokens_};
  }

  // Whether these tasks read memory of the host.
  bool ReadsHostMemory(std::span<const Task> tasks) const {
    const auto reads = [](MemorySpace space, bool is_read) {
      return space == MemorySpace::kHost && is_read;
    };
    return std::any_of(tasks.begin(), tasks.end(), [&](const Task& task) {
      const auto has_mask = [&task] {
        const PlaceEdits* const places = task.places;
        return places != nullptr &&
               std::any_of(places, places + task.draft.num_nodes + 1,
                           [](const PlaceEdits& place) { return place.mask_row != -1; });
      };
      return reads(target.space, true) || reads(draft.space, task.draft.draft_rows != nullptr) ||
             reads(draft_tokens.space, task.drafts_by_slot) || reads(mask.space, has_mask());
    });
  }

  bool IsMaskRow(int32_t row) const { return row >= -1 && row < mask.num_rows; }

  TensorView target;
  TensorView draft;
  MaskView mask;
  TokenRows draft_tokens;

 private:
  std::array<TokenArray, kNextTokensMax> replicas_;     // as they were bound
  std::array<TokenArray, kNextTokensMax> next_tokens_;  // the bound ones, one after another
  size_t num_next_tokens_ = 0;
};

}  // namespace specd
