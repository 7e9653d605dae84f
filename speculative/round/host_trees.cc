#include "speculative/round/host_trees.h"

#include "kernels/core/check.h"
#include "kernels/core/refusal.h"

namespace specd {
namespace {

size_t ElementBytes(const NodeRows& rows) {
  return rows.is_wide ? sizeof(int64_t) : sizeof(int32_t);
}

MemoryRead ReadOf(const NodeRows& rows, uint32_t slot, size_t count, char* to) {
  const size_t element_bytes = ElementBytes(rows);
  return {.from = static_cast<const char*>(rows.data) +
                  static_cast<size_t>(slot * rows.row_stride) * element_bytes,
          .to = to,
          .size_bytes = count * element_bytes};
}

}  // namespace

HostTrees::HostTrees(const BackendLimits& limits)
    : max_draft_(static_cast<size_t>(limits.max_draft)),
      max_path_(limits.max_output() - 1),
      copy_bytes_(static_cast<size_t>(TreeNumbersMax(limits.max_draft)) * sizeof(int64_t)),
      copies_(static_cast<size_t>(limits.max_batch) * copy_bytes_),
      numbers_(static_cast<size_t>(TreeNumbersMax(limits.max_draft))),
      parents_(static_cast<size_t>(limits.max_batch) * max_draft_),
      draft_rows_(parents_.size()) {
  reads_.reserve(2 * static_cast<size_t>(limits.max_batch));
}

void HostTrees::Ask(const TreeRows& rows, size_t index, const SequenceInput& input) {
  const uint32_t slot = SlotOf(input.sequence);
  const size_t num_nodes = input.draft.num_nodes;
  if (!rows.has_lists()) {
    reads_.push_back(ReadOf(rows.parents, slot, num_nodes, CopyOf(index)));
    return;
  }
  reads_.push_back(ReadOf(rows.next_child, slot, num_nodes + 1, CopyOf(index)));
  reads_.push_back(ReadOf(rows.next_sibling, slot, num_nodes + 1, CopyOf(index) + copy_bytes_ / 2));
}

absl::Status HostTrees::Read(const TreeRows& rows, Backend* backend) {
  if (reads_.empty()) return absl::OkStatus();
  if (rows.space() != MemorySpace::kHost) return backend->ReadMemory(reads_);
  for (const MemoryRead& read : reads_) {
    const auto* const from = static_cast<const volatile char*>(read.from);
    for (size_t i = 0; i < read.size_bytes; ++i) static_cast<char*>(read.to)[i] = from[i];
  }
  return absl::OkStatus();
}

void HostTrees::Give(const TreeRows& rows, size_t index, TokenId* tokens, SequenceInput* input) {
  Draft& draft = input->draft;
  TreeRows copy;
  const auto copied = [](const NodeRows& from, const char* data) {
    return NodeRows{.data = data, .is_wide = from.is_wide};
  };
  if (rows.has_lists()) {
    copy.next_child = copied(rows.next_child, CopyOf(index));
    copy.next_sibling = copied(rows.next_sibling, CopyOf(index) + copy_bytes_ / 2);
  } else {
    copy.parents = copied(rows.parents, CopyOf(index));
  }
  for (int32_t i = 0; i < NumTreeNumbers(rows.has_lists(), draft.num_nodes); ++i) {
    numbers_[i] = ReadTreeNumber(copy, 0, draft.num_nodes, i);
  }
  int32_t* const parents = parents_.data() + index * max_draft_;
  const SlotTree tree = MakeSlotTree(draft, rows.has_lists(), max_path_, numbers_.data(), parents);
  input->parents_by_slot = false;
  if (tree.fault != TreeFault::kNone) {
    input->refusal = RefusalOf(StatusOf(tree.fault));
    return;
  }
  for (int32_t i = 0; i < draft.num_nodes; ++i) {
    if (Holds(tree.unlisted, i)) tokens[i] = kNoToken;
  }
  if (draft.draft_rows != nullptr) {
    uint32_t* const draft_rows = draft_rows_.data() + index * max_draft_;
    for (int32_t i = 0; i < draft.num_nodes; ++i) {
      draft_rows[i] = draft.draft_rows[PlaceAfter(parents[i])];
    }
    draft.draft_rows = draft_rows;
  }
  draft.parents = parents;
}

}  // namespace specd
