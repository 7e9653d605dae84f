// MakeTextTail picks the ids before a sequence's first token that its text depends on.
//
// The text side has never seen the prompt of a sequence, or the outputs that it is opened with. Two
// things may have begun there: a code point, and in the outputs a stop string. If the tokenizer's
// decoder strips leading spaces, text there also ends the front of the text. The last ids show all
// three, so the opening brings them along. If the text is that of the outputs alone, the prompt
// stays out of it. A pure function, safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/session/model_profile.h"
#include "kernels/core/types.h"
#include "speculative/params/params.h"
#include "speculative/processors/token_history.h"

namespace specd {

struct TextTail {
  // The thought that a model with a reasoning_end begins an output with.
  struct Thought {
    bool is_open = false;     // after these ids; otherwise the text is an answer
    uint32_t progress = 0;    // the bytes of its end that the last ids spell
    uint64_t num_tokens = 0;  // of the outputs
  };
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;
  Thought thought = {};
};

// If the decoder changes no front, most openings have an empty tail. Ids of the prompt without text
// are left out. If the profile has no tokenizer, every id of the outputs counts as one byte, and
// the last ids of the prompt come along.
TextTail MakeTextTail(const ModelProfile& profile, const SequenceParams& params,
                      const SequenceHistory& history);

}  // namespace specd
