// CheckDraft and InputOf take a sequence's part of a round from the C interface, for EngineRounds.
//
// CheckDraft looks at pointers, counts and flags. The code that reads the submission checks row
// indices and ids (ipc/segment/draft_record.h). Any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/sequence_round.h"

namespace specd {

// OK, or an error that names the first wrong field of drafts[index].
absl::Status CheckDraft(uint32_t index, const specd_draft& draft, uint32_t max_draft);

// The pointers are those of the draft. REQUIRES: CheckDraft allowed it.
SequenceInput InputOf(const specd_draft& draft);

}  // namespace specd
