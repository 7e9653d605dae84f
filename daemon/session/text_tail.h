// MakeTextTail picks the ids before a sequence's first token that its text depends on.
//
// The text side has never seen the prompt of a sequence, or the outputs that it is opened with. Two
// things may have begun there: a code point, and in the outputs a stop string. If the tokenizer's
// decoder strips leading spaces, text there also ends the front of the text. The last ids show all
// three, so the opening brings them along. If the text is that of the outputs alone, the prompt
// stays out of it. A pure function, safe from any thread.
#pragma once

#include <vector>

#include "daemon/session/model_profile.h"
#include "kernels/core/types.h"
#include "speculative/params/params.h"
#include "speculative/processors/token_history.h"

namespace specd {

struct TextTail {
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;
};

// If the decoder changes no front, most openings have an empty tail. Ids of the prompt without text
// are left out. If the profile has no tokenizer, every id of the outputs counts as one byte, and
// the last ids of the prompt come along.
TextTail MakeTextTail(const ModelProfile& profile, const SequenceParams& params,
                      const SequenceHistory& history);

}  // namespace specd
