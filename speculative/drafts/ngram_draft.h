// DraftNgrams proposes the tokens that followed the end of a text where it occurred before.
//
// Text that repeats itself (code, quotes, edits of the prompt) needs no draft model: the longest
// n-gram at the end of the text is looked for in the text, and the continuations of its occurrences
// are the draft, as one-hot tokens. docs/ALGORITHMS.md, "Drafts from the text". The time is linear
// in the text, plus n log n of its n occurrences for each level of the draft. The memory is at most
// 16 bytes for each id of the text. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/types.h"

namespace specd {

struct NgramDraftOptions {
  int32_t min_ngram = 1;
  int32_t max_ngram = 8;  // at least min_ngram
  int32_t num_nodes = 8;
  int32_t max_depth = 8;
  int32_t width = 1;  // children of a place; 1: a chain
};

// Node i follows node parents[i], an earlier one, or kRoot.
struct NgramDraft {
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
};

// Nothing is proposed if no n-gram of min_ngram ids at the end of the text occurs before. REQUIRES:
// all options are positive.
NgramDraft DraftNgrams(std::span<const TokenId> text, const NgramDraftOptions& options);

}  // namespace specd
