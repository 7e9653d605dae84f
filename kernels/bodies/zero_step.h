// ZeroStepOf says which step of CONTRACT §3 made p of a draft token 0, for records.
//
// It looks at one element and takes no pass, so a recorded round costs no more. Pure function.
#pragma once

#include "kernels/bodies/truncate.h"
#include "kernels/core/decision.h"

namespace specd {

// REQUIRES: `p` is not bad, the id is in the vocabulary, and WeightOf(p, id) is 0.
SPECD_INLINE ZeroStep ZeroStepOf(const Distribution& p, const Filters& filters, TokenId id) {
  Row row = p.row;
  if (row.place.forced != kNoToken) return ZeroStep::kForced;
  if (!MaskAllows(row.mask, id)) {
    return row.place.mask_row >= 0 ? ZeroStep::kMask : ZeroStep::kGrammar;
  }
  if (!MaskAllows(row.sequence.allowed, id)) return ZeroStep::kAllowed;
  if (const TokenEdit* const edit = EditOf(row, id)) {
    if ((edit->flags & kEditDisallowed) != 0) return ZeroStep::kDisallowed;
    if (row.place.below_min_tokens && (edit->flags & kEditEnd) != 0) return ZeroStep::kMinTokens;
    if ((edit->flags & kEditBanned) != 0) return ZeroStep::kBanned;
  }
  row.has_cut = false;
  const float l = ElementOf(row, id);
  if (p.point != kNoToken || l == -kInfinity) return ZeroStep::kRow;
  if (!p.row.has_cut) return ZeroStep::kUnderflow;
  if (HasMinP(filters) && (l - p.max) * p.scale < filters.min_p) return ZeroStep::kMinP;
  const bool is_kept = l > p.row.cut.value || (l == p.row.cut.value && id <= p.row.cut.last);
  if (is_kept) return ZeroStep::kUnderflow;
  const bool has_top_k = HasTopK(filters, row.view.vocab_size);
  if (has_top_k && HasTopP(filters)) return ZeroStep::kTopKOrTopP;
  return has_top_k ? ZeroStep::kTopK : ZeroStep::kTopP;
}

}  // namespace specd
