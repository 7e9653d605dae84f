#include "kernels/cuda/task_upload.h"

namespace specd {

namespace {

int32_t UploadMaskRow(const MaskView& mask, int32_t row, RowUpload* rows) {
  if (mask.space == MemorySpace::kDevice) return row;
  return static_cast<int32_t>(rows->Append(mask.words + row * mask.row_stride));
}

// The task's own draft tokens, or those of its slot if only the host can read them.
const TokenId* DraftTokensOf(const Task& task, const TokenRows& rows) {
  if (!task.drafts_by_slot || rows.space != MemorySpace::kHost) return task.draft.tokens;
  return rows.ids + task.slot * rows.row_stride;
}

}  // namespace

GpuResult BatchRows::result() const {
  for (const RowUpload* rows : {&target, &draft, &masks}) {
    if (!rows->result().ok()) return rows->result();
  }
  return GpuResult::Ok();
}

uint32_t UploadRow(const TensorView& tensor, uint32_t row, RowUpload* rows) {
  if (tensor.space == MemorySpace::kDevice) return row;
  return rows->Append(RowAt(tensor, row).data);
}

TensorView OnDevice(const TensorView& tensor, const RowUpload& rows) {
  if (tensor.space == MemorySpace::kDevice) return tensor;
  TensorView copied = tensor;
  copied.data = rows.memory();
  copied.num_rows = rows.num_rows();
  copied.row_stride = NumElements(tensor);
  copied.space = MemorySpace::kDevice;
  return copied;
}
MaskView OnDevice(const MaskView& mask, const RowUpload& rows, int32_t vocab_size) {
  if (mask.space == MemorySpace::kDevice) return mask;
  return {static_cast<const uint32_t*>(rows.memory()), rows.num_rows(), MaskWords(vocab_size),
          MemorySpace::kDevice};
}

size_t ListBytes(const Task& task) {
  int64_t num_edits = task.edits.num_edits;
  const int32_t num_places = task.places == nullptr ? 0 : NumPlaces(task);
  for (int32_t i = 0; i < num_places; ++i) num_edits += task.places[i].num_overrides;
  return static_cast<size_t>(num_edits) * sizeof(TokenEdit);
}

bool PackTask(const Task& task, const RoundBatch& batch, BatchRows* rows, Arena* arena,
              Task* packed) {
  const Draft& draft = task.draft;
  const int32_t num_places = NumPlaces(task);
  Task copy = task;
  copy.draft.tokens = arena->Put(DraftTokensOf(task, batch.draft_tokens), draft.num_nodes);
  copy.draft.parents = arena->Put(draft.parents, draft.num_nodes);
  copy.draft.kinds = arena->Put(draft.kinds, draft.num_nodes);
  copy.draft.draft_weights = arena->Put(draft.draft_weights, draft.num_nodes);
  copy.draft.draft_masses = arena->Put(draft.draft_masses, draft.num_nodes);
  copy.draft.target_argmax = arena->Put(draft.target_argmax, num_places);
  copy.edits.edits = arena->Put(task.edits.edits, task.edits.num_edits);
  copy.edits.allowed = arena->Put(task.edits.allowed, MaskWords(batch.target.vocab_size));
  copy.coins = arena->Put(task.coins, task.num_coins);
  copy.scores.chosen = arena->Put(task.scores.chosen, task.scores.num_chosen);
  copy.lossy.rates = arena->Put(task.lossy.rates, task.lossy.num_rates);
  const ArenaArray<uint32_t> target_rows = arena->Take<uint32_t>(num_places);
  const ArenaArray<uint32_t> draft_rows = arena->Take<uint32_t>(draft.num_nodes);
  const ArenaArray<PlaceEdits> places =
      arena->Take<PlaceEdits>(task.places == nullptr ? 0 : num_places);
  copy.draft.target_rows = target_rows.device;
  copy.draft.draft_rows = draft_rows.device;
  copy.places = places.device;
  for (int32_t i = 0; i < num_places && places.host != nullptr; ++i) {
    places.host[i] = task.places[i];
    places.host[i].overrides = arena->Put(task.places[i].overrides, task.places[i].num_overrides);
  }
  if (arena->full()) return false;

  for (int32_t i = 0; i < num_places; ++i) {
    if (draft.target_argmax == nullptr) {
      target_rows.host[i] = UploadRow(batch.target, draft.target_rows[i], &rows->target);
    }
    if (places.host == nullptr) continue;
    PlaceEdits& place = places.host[i];
    if (place.mask_row >= 0) {
      place.mask_row = UploadMaskRow(batch.mask, place.mask_row, &rows->masks);
    } else if (place.grammar_mask != nullptr) {
      place.grammar_mask = static_cast<const uint32_t*>(rows->masks.AppendAt(place.grammar_mask));
    }
  }
  for (int32_t i = 0; i < draft.num_nodes; ++i) {
    if (!(task.parents_by_slot ? AnyDrawn(draft) : IsDrawn(draft, i))) continue;
    draft_rows.host[i] = UploadRow(batch.draft, draft.draft_rows[i], &rows->draft);
  }
  *packed = copy;
  return true;
}

}  // namespace specd
