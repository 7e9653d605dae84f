// RowBindings holds the tensors that the rounds of one session read and write, as they are bound
// now.
//
// Plain data; the session's lock guards it. A view owns nothing: the session keeps the memory
// mapped while a role is bound to it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/core/round.h"
#include "kernels/core/slot_output.h"
#include "kernels/core/types.h"

namespace specd {

// The number of tensor-parallel ranks that may have slot outputs of their own.
inline constexpr uint32_t kReplicasMax = 8;

// The columns of narrow draft rows.
struct DraftMap {
  std::vector<int32_t> columns;   // by id, -1: none
  const int32_t* kept = nullptr;  // the same where rounds read it (Backend::KeepColumns)
  int32_t num_columns = 0;        // 0: no map is bound
};

struct RowBindings {
  // A round without tensors may still bring argmax ids, which need the vocabulary size and no rows.
  explicit RowBindings(int32_t vocab_size) {
    target.vocab_size = vocab_size;
    draft.vocab_size = vocab_size;
  }

  // Binds a replica of a slot output, which every later round writes. Without data: unbinds it.
  void BindSlotOutput(uint32_t replica, const SlotOutput& output) {
    SPECD_CHECK(replica < kReplicasMax);
    replicas_[replica][static_cast<size_t>(output.field)] = output;
    num_slot_outputs_ = 0;
    for (const auto& fields : replicas_) {
      for (const SlotOutput& bound : fields) {
        if (bound.data != nullptr) slot_outputs_[num_slot_outputs_++] = bound;
      }
    }
  }
  std::span<const SlotOutput> slot_outputs() const {
    return {slot_outputs_.data(), num_slot_outputs_};
  }

  // Whether these tasks read memory of the host.
  bool ReadsHostMemory(std::span<const Task> tasks) const {
    const auto reads = [](MemorySpace space, bool is_read) {
      return space == MemorySpace::kHost && is_read;
    };
    return std::any_of(tasks.begin(), tasks.end(), [&](const Task& task) {
      const auto has_mask = [&task] {
        const PlaceEdits* const places = task.places;
        return places != nullptr &&
               std::any_of(places, places + task.draft.num_nodes + 1,
                           [](const PlaceEdits& place) { return place.mask_row != -1; });
      };
      // With argmax ids a task reads no target row, and the role may be unbound.
      return reads(target.space, task.draft.target_argmax == nullptr) ||
             reads(draft.space, task.draft.draft_rows != nullptr) ||
             reads(draft_tokens.space, task.drafts_by_slot) || reads(mask.space, has_mask());
    });
  }

  bool IsMaskRow(int32_t row) const { return row >= -1 && row < mask.num_rows; }

  TensorView target;
  TensorView draft;
  DraftMap map;
  MaskView mask;
  TokenRows draft_tokens;
  TreeRows draft_tree;

 private:
  // As they were bound, and the bound ones one after another.
  std::array<std::array<SlotOutput, kNumSlotFields>, kReplicasMax> replicas_;
  std::array<SlotOutput, kReplicasMax * kNumSlotFields> slot_outputs_;
  size_t num_slot_outputs_ = 0;
};

}  // namespace specd
