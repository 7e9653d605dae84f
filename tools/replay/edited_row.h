// EditedRow is a target row of a rebuilt task with the edits of one place, as the bodies see it.
//
// PlaceRows and CauseOfZero take steps 1 to 6 of CONTRACT §3 from it, element by element. Pure
// functions.
#pragma once

#include <cstdint>

#include "kernels/bodies/row.h"
#include "kernels/core/round.h"

namespace specd::replay {

// REQUIRES: the batch outlives the row.
Row EditedRow(const RoundBatch& batch, const Task& task, int32_t place, const RowView& view);

// The edit of an id, or one that changes nothing.
TokenEdit EditOrNone(const Row& row, TokenId id);
bool PassesStep1(const Row& row, TokenId id);
// Step 3 yields if step 1 leaves only ends.
bool OnlyEndsPass(const Row& row);

}  // namespace specd::replay
