#include "daemon/client/batch_drafts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "ipc/base/error.h"

namespace specd {
namespace {

// The element at `index`, or null if the array is not there.
template <class T>
const T* At(const T* array, uint32_t index) {
  return array == nullptr ? nullptr : array + index;
}

}  // namespace

RowNumbers::RowNumbers(const SessionLimits& limits)
    : numbers_(size_t{limits.max_batch} * (limits.max_draft + 1)) {
  std::iota(numbers_.begin(), numbers_.end(), 0U);
}

absl::Status BatchDrafts::Check(const specd_batch& batch, const SessionLimits& limits,
                                const RowNumbers& numbers, BatchDrafts* out) {
  const uint32_t count = batch.num_sequences;
  if (count == 0 || count > limits.max_batch) {
    return Invalid("num_sequences",
                   fmt::format("num_sequences = {} is outside 1 .. {} (max_batch of specd_open)",
                               count, limits.max_batch));
  }
  if (batch.sequences == nullptr) {
    return Invalid("sequences", fmt::format("sequences is NULL but num_sequences = {}", count));
  }
  out->batch_ = &batch;
  out->numbers_ = &numbers;
  out->size_ = {count, 0};
  if (batch.draft_offsets == nullptr) return absl::OkStatus();
  if (batch.draft_offsets[0] != 0) {
    return Invalid("draft_offsets", fmt::format("draft_offsets[0] = {} must be 0; begin the arrays "
                                                "with the first sequence's draft",
                                                batch.draft_offsets[0]));
  }
  for (uint32_t i = 0; i < count; ++i) {
    const int64_t num_nodes = int64_t{batch.draft_offsets[i + 1]} - batch.draft_offsets[i];
    if (num_nodes < 0 || num_nodes > limits.max_draft) {
      return Invalid("draft_offsets",
                     fmt::format("draft_offsets[{}] - draft_offsets[{}] = {}, the draft tokens of "
                                 "sequence {}, is outside 0 .. {} (max_draft of specd_open)",
                                 i + 1, i, num_nodes, i, limits.max_draft));
    }
    out->size_.max_nodes = std::max(out->size_.max_nodes, static_cast<uint32_t>(num_nodes));
  }
  return absl::OkStatus();
}

specd_draft BatchDrafts::operator[](uint32_t i) const {
  const specd_batch& batch = *batch_;
  const uint32_t node = FirstNode(i);
  const uint32_t place = node + i;
  specd_draft draft = {};
  draft.struct_size = sizeof(draft);
  draft.flags = batch.flags == nullptr ? 0 : batch.flags[i];
  draft.sequence = batch.sequences[i];
  draft.num_nodes = batch.draft_offsets == nullptr ? 0 : batch.draft_offsets[i + 1] - node;
  const bool by_slot = (draft.flags & SPECD_DRAFTS_BY_SLOT) != 0;
  draft.tokens = by_slot ? nullptr : At(batch.tokens, node);
  const bool parents_by_slot = (draft.flags & SPECD_PARENTS_BY_SLOT) != 0;
  draft.parents = parents_by_slot ? nullptr : At(batch.parents, node);
  draft.kinds = At(batch.kinds, node);
  draft.draft_rows = At(batch.draft_rows, node);
  draft.draft_weights = At(batch.draft_weights, node);
  draft.draft_masses = At(batch.draft_masses, node);
  draft.target_argmax = At(batch.target_argmax, place);
  draft.target_rows = At(batch.target_rows, place);
  draft.mask_rows = At(batch.mask_rows, place);
  if (draft.target_rows == nullptr && draft.target_argmax == nullptr) {
    draft.target_rows = numbers_->from(place);
  }
  if (draft.draft_rows == nullptr && draft.kinds != nullptr)
    draft.draft_rows = numbers_->from(node);
  return draft;
}

}  // namespace specd
