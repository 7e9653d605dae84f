// Sized gives tests the structs of the C interface with their sizes set, and a chain for
// specd_submit. Plain data; the memory that the pointers name must outlive the call.
#pragma once

#include "ipc/include/specd/specd.h"

namespace specd {

// An element of an array: zero, except for its size.
template <class T>
T Sized() {
  T element = {};
  element.struct_size = sizeof(T);
  return element;
}

// The completion that specd_poll fills.
inline specd_completion SizedCompletion() {
  specd_completion completion = Sized<specd_completion>();
  completion.result_size = sizeof(specd_result);
  return completion;
}

inline specd_draft ChainDraft(specd_sequence sequence, uint32_t num_nodes, const int32_t* tokens,
                              const uint32_t* target_rows) {
  specd_draft draft = Sized<specd_draft>();
  draft.sequence = sequence;
  draft.num_nodes = num_nodes;
  draft.tokens = tokens;
  draft.target_rows = target_rows;
  return draft;
}

}  // namespace specd
