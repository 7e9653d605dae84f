// ReadParams turns "temperature=0.8,top_p=0.95" into the parameters of sequences.
//
// Names are specd's (docs/PARAMETERS.md). A name that is only llama.cpp's is refused with the
// remedy, and so is a parameter that this engine has no use for. Safe from any thread.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "specd/specd.h"

namespace specd::llama_cpp {

enum class Drafts { kAuto, kSampled, kBest, kNgram };

using Numbers = std::vector<specd_number>;

// The names in the result are valid for the life of libspecd.
absl::StatusOr<Numbers> ReadParams(std::string_view text);

// Refuses a method that verifies chains alone.
absl::Status CheckTakesTrees(const Numbers& numbers);

// Decides kAuto: n-grams without a draft model, the best id where the text then does not depend on
// drafts, and otherwise sampled drafts.
Drafts ChooseDrafts(Drafts asked, bool has_draft_model, const Numbers& numbers);

// Adds the sequence's own temperature and filters for the draft rows, if no draft_... is named.
void AddDraftSteps(Numbers* numbers);

}  // namespace specd::llama_cpp
