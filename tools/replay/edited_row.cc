#include "tools/replay/edited_row.h"

namespace specd::replay {

// As ChainRows makes it.
Row EditedRow(const RoundBatch& batch, const Task& task, int32_t place, const RowView& view) {
  Row row;
  row.view = view;
  row.sequence = task.edits;
  if (task.places == nullptr) return row;
  row.place = task.places[place];
  row.mask = row.place.grammar_mask;
  if (row.place.mask_row >= 0) {
    row.mask = batch.mask.words + row.place.mask_row * batch.mask.row_stride;
  }
  return row;
}

TokenEdit EditOrNone(const Row& row, TokenId id) {
  const TokenEdit* const edit = EditOf(row, id);
  if (edit != nullptr) return *edit;
  TokenEdit none;
  none.id = id;
  return none;
}

bool PassesStep1(const Row& row, TokenId id) { return IsAllowed(row, EditOrNone(row, id)); }

bool OnlyEndsPass(const Row& row) {
  for (TokenId id = 0; id < row.view.vocab_size; ++id) {
    const bool is_end = (EditOrNone(row, id).flags & kEditEnd) != 0;
    if (!is_end && PassesStep1(row, id)) return false;
  }
  return true;
}

}  // namespace specd::replay
