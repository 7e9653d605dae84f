// A chain for specd_submit with what most tests leave out at its default. Plain data; what the
// pointers name must outlive the call.
#pragma once

#include "ipc/include/specd/specd.h"

namespace specd {

inline specd_draft ChainDraft(specd_sequence sequence, uint32_t num_drafts, const int32_t* tokens,
                              const uint32_t* target_rows) {
  specd_draft draft = {};
  draft.sequence = sequence;
  draft.num_drafts = num_drafts;
  draft.tokens = tokens;
  draft.target_rows = target_rows;
  return draft;
}

}  // namespace specd
