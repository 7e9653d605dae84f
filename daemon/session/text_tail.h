// MakeTextTail picks the ids before a sequence's first token that its text depends on.
//
// The text side has never seen the prompt of a sequence, or the outputs that it is opened with. Two
// things may have begun there: a code point, and in the outputs a stop string. The last ids show
// both, so the opening brings them along. A pure function, safe from any thread.
#pragma once

#include <vector>

#include "daemon/session/model_profile.h"
#include "kernels/core/types.h"
#include "speculative/params.h"
#include "speculative/token_history.h"

namespace specd {

struct TextTail {
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;
};

// Most openings have an empty tail. If the profile has no tokenizer, every id counts as one byte.
TextTail MakeTextTail(const ModelProfile& profile, const SequenceParams& params,
                      const SequenceHistory& history);

}  // namespace specd
