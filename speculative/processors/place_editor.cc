#include "speculative/processors/place_editor.h"

namespace specd {

PlaceEditor::PlaceEditor(const TokenEdits* edits, int32_t vocab_size, size_t room,
                         FixedList<TokenEdit>* pool)
    : edits_(edits), vocab_size_(vocab_size), room_(room), begin_(pool->size()), pool_(pool) {}

void PlaceEditor::Force(TokenId id) {
  SPECD_CHECK(id >= 0 && id < vocab_size_);
  forced_ = id;
}

void PlaceEditor::Add(const TokenEdit& edit) {
  SPECD_CHECK(edit.id >= 0 && edit.id < vocab_size_);
  if (pool_->size() - begin_ == room_) Merge();
  SPECD_CHECK(pool_->size() - begin_ < room_);
  pool_->push_back(edit);
}

void PlaceEditor::Merge() {
  const size_t size = MergeEdits({pool_->data() + begin_, pool_->size() - begin_});
  pool_->truncate(begin_ + size);
}

PlaceEdits PlaceEditor::Finish() {
  PlaceEdits place;
  place.forced = forced_;
  place.in_thought = in_thought_;
  // A constraint may cancel the forced token (SequenceGrammar), and then these edits hold.
  Merge();
  for (size_t i = begin_; i < pool_->size(); ++i) {
    TokenEdit& edit = (*pool_)[i];
    const TokenEdit entry = edits_->Get(edit.id);
    edit.flags |= entry.flags;
    edit.bias += entry.bias;
    edit.count += entry.count;
  }
  place.num_overrides = static_cast<int32_t>(pool_->size() - begin_);
  if (place.num_overrides > 0) place.overrides = pool_->data() + begin_;
  return place;
}

}  // namespace specd
