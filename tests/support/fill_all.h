// FillAll fills the masks of a draft's places in one go, for tests that do not care about slices.
// One thread.
#pragma once

#include "speculative/sequence/sequence_grammar.h"

namespace specd {

inline void FillAll(SequenceGrammar* grammar, const Draft& draft, PlaceEdits* places) {
  int32_t next = 0;
  grammar::WorkSlice all;
  (void)grammar->Fill(draft, places, &next, &all);
}

}  // namespace specd
