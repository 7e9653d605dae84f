#include "ipc/segment/draft_record.h"

#include <cstring>

#include "ipc/base/peer_memory.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

// Copies `count` elements if there are any.
template <class T>
void Put(char* to, const T* from, size_t count) {
  if (count > 0) std::memcpy(to, from, count * sizeof(T));
}

template <class T>
const T* At(const char* record, uint32_t offset) {
  return reinterpret_cast<const T*>(record + offset);
}

uint32_t FlagsOf(const SequenceInput& input) {
  if (input.discard) return kDraftDiscard;
  uint32_t flags = 0;
  if (input.mask_rows != nullptr) flags |= kDraftMaskRows;
  if (input.draft.draft_weights != nullptr) flags |= kDraftSideChannel;
  if (input.draft.target_argmax != nullptr) flags |= kDraftArgmax;
  if (input.drafts_by_slot) flags |= kDraftBySlot;
  if (input.draft.parents != nullptr) flags |= kDraftParents;
  if (input.parents_by_slot) flags |= kDraftSlotParents;
  return flags;
}

void WriteOptional(const SegmentLayout& layout, const SequenceInput& input, uint32_t flags,
                   char* record) {
  const Draft& draft = input.draft;
  const size_t num_nodes = draft.num_nodes;
  if ((flags & kDraftSideChannel) != 0) {
    Put(record + layout.draft_masses_offset, draft.draft_masses, num_nodes);
    Put(record + layout.draft_weights_offset, draft.draft_weights, num_nodes);
  }
  if ((flags & kDraftMaskRows) != 0) {
    Put(record + layout.draft_mask_rows_offset, input.mask_rows, num_nodes + 1);
  }
  if ((flags & kDraftArgmax) != 0) {
    Put(record + layout.draft_argmax_offset, draft.target_argmax, num_nodes + 1);
  }
  if ((flags & kDraftParents) != 0) {
    Put(record + layout.draft_parents_offset, draft.parents, num_nodes);
  }
}

// Leaves out parents that make a chain. False if the parents are no tree.
bool ReadParents(const int32_t* parents, Draft* draft) {
  bool is_chain = true;
  for (int32_t i = 0; i < draft->num_nodes; ++i) {
    if (parents[i] < kRoot || parents[i] >= i) return false;
    is_chain = is_chain && parents[i] == i - 1;
  }
  if (!is_chain) draft->parents = parents;
  return true;
}

bool FitsPath(const Draft& draft, int32_t max_path) {
  if (draft.parents == nullptr) return draft.num_nodes <= max_path;
  int32_t depths[kNodesMax];
  for (int32_t i = 0; i < draft.num_nodes; ++i) {
    depths[i] = draft.parents[i] == kRoot ? 1 : depths[draft.parents[i]] + 1;
    if (depths[i] > max_path) return false;
  }
  return true;
}

// The children of one place (CONTRACT §2). Ids outside the vocabulary end their branches and may
// repeat, and ids that only the device knows are not compared.
Refusal CheckSiblings(const Draft& draft, uint32_t vocab_size) {
  if (draft.parents == nullptr) return Refusal::kNone;
  for (int32_t b = 1; b < draft.num_nodes; ++b) {
    for (int32_t a = 0; a < b; ++a) {
      if (draft.parents[a] != draft.parents[b]) continue;
      const bool both_drawn = IsDrawn(draft, a) && IsDrawn(draft, b);
      if (both_drawn && draft.draft_rows[a] != draft.draft_rows[b]) return Refusal::kSiblingRows;
      if (both_drawn && draft.kinds[a] != draft.kinds[b]) return Refusal::kSiblingKinds;
      // A drawn id may be that of a one-hot sibling, which then is never accepted.
      const bool may_repeat =
          draft.kinds[a] == DraftKind::kSampled || draft.kinds[b] == DraftKind::kSampled;
      const bool is_id = draft.tokens != nullptr &&
                         IsInVocabulary(draft.tokens[a], static_cast<int32_t>(vocab_size));
      if (is_id && !may_repeat && draft.tokens[a] == draft.tokens[b]) {
        return Refusal::kSiblingTokens;
      }
    }
  }
  return Refusal::kNone;
}

// The kernels judge the weights and masses of a side channel, as they judge rows.
Refusal CheckRows(const SequenceInput& input, uint32_t vocab_size, const RowLimits& rows) {
  const Draft& draft = input.draft;
  for (int32_t i = 0; i <= draft.num_nodes; ++i) {
    if (draft.target_rows != nullptr && draft.target_rows[i] >= rows.target_rows) {
      return rows.target_rows == 0 ? Refusal::kTargetUnbound : Refusal::kTargetRow;
    }
    // A negative id becomes a large unsigned number.
    if (draft.target_argmax != nullptr &&
        static_cast<uint32_t>(draft.target_argmax[i]) >= vocab_size) {
      return Refusal::kArgmax;
    }
    if (input.mask_rows != nullptr && input.mask_rows[i] != -1 &&
        static_cast<uint32_t>(input.mask_rows[i]) >= rows.mask_rows) {
      return rows.mask_rows == 0 ? Refusal::kMaskUnbound : Refusal::kMaskRow;
    }
  }
  // Any place may have drawn children if only the device knows the parents.
  const bool any_place = input.parents_by_slot && AnyDrawn(draft);
  for (int32_t i = 0; i < draft.num_nodes; ++i) {
    if (draft.kinds[i] == DraftKind::kOneHot && !any_place) continue;
    if (draft.kinds[i] > DraftKind::kSampledRest) return Refusal::kKind;
    if (draft.draft_rows[i] < rows.draft_rows) continue;
    if (draft.draft_rows[i] == kNoRow) return Refusal::kNoDraftRow;
    return rows.draft_rows == 0 ? Refusal::kDraftUnbound : Refusal::kDraftRow;
  }
  return Refusal::kNone;
}

}  // namespace

void WriteDraft(const SegmentLayout& layout, const SequenceInput& input, char* record) {
  const Draft& draft = input.draft;
  const uint32_t flags = FlagsOf(input);
  SPECD_CHECK(input.discard || (draft.num_nodes >= 0 && draft.num_nodes <= kNodesMax));
  const size_t num_nodes = input.discard ? 0 : static_cast<size_t>(draft.num_nodes);
  const DraftRecord header = {
      .sequence = input.sequence, .num_nodes = static_cast<uint32_t>(num_nodes), .flags = flags};
  std::memcpy(record, &header, sizeof(header));
  if (input.discard) return;
  WriteOptional(layout, input, flags, record);
  if (draft.target_argmax == nullptr) {
    Put(record + layout.draft_target_rows_offset, draft.target_rows, num_nodes + 1);
  }
  if (!input.drafts_by_slot) Put(record + layout.draft_tokens_offset, draft.tokens, num_nodes);
  if (draft.kinds != nullptr) {
    Put(record + layout.draft_kinds_offset, draft.kinds, num_nodes);
  } else {
    static_assert(static_cast<uint8_t>(DraftKind::kOneHot) == 0);
    std::memset(record + layout.draft_kinds_offset, 0, num_nodes);
  }
  // If no rows came, a sampled token must not find those of an earlier round: each is kNoRow.
  if (draft.draft_rows != nullptr) {
    Put(record + layout.draft_draft_rows_offset, draft.draft_rows, num_nodes);
  } else {
    std::memset(record + layout.draft_draft_rows_offset, 0xff, num_nodes * sizeof(uint32_t));
  }
}

void CopyDraft(const SegmentLayout& layout, const char* from, char* record) {
  CopyOnce(record, from, layout.draft_masses_offset);
  DraftRecord header;
  std::memcpy(&header, record, sizeof(header));
  if ((header.flags & ~uint32_t{kDraftDiscard | kDraftBySlot | kDraftSlotParents}) == 0) return;
  CopyOnce(record + layout.draft_masses_offset, from + layout.draft_masses_offset,
           layout.draft_record_bytes - layout.draft_masses_offset);
}

SequenceInput ReadDraft(const SegmentLayout& layout, const SessionLimits& limits,
                        const RowLimits& rows, const char* record) {
  DraftRecord header;
  std::memcpy(&header, record, sizeof(header));
  const auto refused = [&header](Refusal refusal) {
    SequenceInput input;
    input.sequence = header.sequence;
    input.refusal = refusal;
    return input;
  };
  if (SlotOf(header.sequence) >= limits.max_sequences) return refused(Refusal::kSequence);
  if ((header.flags & ~kDraftFlagsAll) != 0) return refused(Refusal::kFlags);
  if (header.num_nodes > limits.max_draft) return refused(Refusal::kCount);
  const auto has = [&header](uint32_t flag) { return (header.flags & flag) != 0; };

  SequenceInput input;
  input.sequence = header.sequence;
  input.discard = has(kDraftDiscard);
  if (input.discard) return input;
  input.drafts_by_slot = has(kDraftBySlot);
  if (input.drafts_by_slot && !rows.has_draft_tokens) return refused(Refusal::kDraftTokens);
  input.parents_by_slot = has(kDraftSlotParents);
  if (input.parents_by_slot && (!input.drafts_by_slot || !rows.has_draft_tree)) {
    return refused(Refusal::kSlotParents);
  }
  if (input.parents_by_slot && has(kDraftParents)) return refused(Refusal::kFlags);
  Draft& draft = input.draft;
  draft.num_nodes = static_cast<int32_t>(header.num_nodes);
  if (has(kDraftParents) &&
      !ReadParents(At<int32_t>(record, layout.draft_parents_offset), &draft)) {
    return refused(Refusal::kParents);
  }
  // The processor of the round checks the paths of a tree by slot.
  if (!input.parents_by_slot && !FitsPath(draft, static_cast<int32_t>(limits.path_max()))) {
    return refused(Refusal::kPath);
  }
  if (!input.drafts_by_slot) draft.tokens = At<TokenId>(record, layout.draft_tokens_offset);
  draft.draft_rows = At<uint32_t>(record, layout.draft_draft_rows_offset);
  draft.kinds = At<DraftKind>(record, layout.draft_kinds_offset);
  if (has(kDraftArgmax)) {
    draft.target_argmax = At<TokenId>(record, layout.draft_argmax_offset);
  } else {
    draft.target_rows = At<uint32_t>(record, layout.draft_target_rows_offset);
  }
  if (has(kDraftSideChannel)) {
    draft.draft_masses = At<double>(record, layout.draft_masses_offset);
    draft.draft_weights = At<float>(record, layout.draft_weights_offset);
  }
  if (has(kDraftMaskRows)) input.mask_rows = At<int32_t>(record, layout.draft_mask_rows_offset);
  const Refusal refusal = CheckRows(input, limits.vocab_size, rows);
  if (refusal != Refusal::kNone) return refused(refusal);
  const Refusal of_siblings = CheckSiblings(draft, limits.vocab_size);
  return of_siblings == Refusal::kNone ? input : refused(of_siblings);
}

void WriteResult(const SegmentLayout& layout, const SessionLimits& limits,
                 const SequenceResult& result, char* record) {
  SPECD_CHECK(result.num_kept <= limits.max_output());
  SPECD_CHECK(result.num_accepted <= result.num_kept);
  SPECD_CHECK(result.scores_per_token <= limits.max_scores);
  const ResultRecord header = {.sequence = result.sequence,
                               .status = static_cast<uint32_t>(result.status),
                               .finish_reason = static_cast<uint32_t>(result.finish_reason),
                               .num_accepted = result.num_accepted,
                               .num_kept = result.num_kept,
                               .total_kept = result.total_kept,
                               .stop_token = result.stop_token,
                               .refusal = static_cast<uint16_t>(result.refusal),
                               .method = static_cast<uint16_t>(result.method),
                               .scores_per_token = result.scores_per_token,
                               .cumulative_logprob = result.cumulative_logprob,
                               .bad_row = result.bad_row,
                               .reserved = 0};
  std::memcpy(record, &header, sizeof(header));
  Put(record + layout.result_tokens_offset, result.tokens, result.num_kept);
  Put(record + layout.result_path_offset, result.path, result.num_accepted);
  Put(record + layout.result_scores_offset, result.scores,
      size_t{result.num_kept} * result.scores_per_token);
}

// A count that does not fit would be read past its record. Scores are large and seldom asked for,
// so only the scores that are there are copied.
bool ReadResult(const SegmentLayout& layout, const SessionLimits& limits, const char* from,
                char* record, SequenceResult* result) {
  CopyOnce(record, from, layout.result_scores_offset);
  ResultRecord header;
  std::memcpy(&header, record, sizeof(header));
  if (header.num_kept > limits.max_output() || header.num_accepted > header.num_kept ||
      header.scores_per_token > limits.max_scores) {
    return false;
  }
  CopyOnce(record + layout.result_scores_offset, from + layout.result_scores_offset,
           uint64_t{header.num_kept} * header.scores_per_token * sizeof(TokenScore));
  *result = {.sequence = header.sequence,
             .status = static_cast<RoundStatus>(header.status),
             .refusal = static_cast<Refusal>(header.refusal),
             .method = static_cast<VerifyMethod>(header.method),
             .finish_reason = static_cast<FinishReason>(header.finish_reason),
             .num_accepted = header.num_accepted,
             .num_kept = header.num_kept,
             .total_kept = header.total_kept,
             .stop_token = header.stop_token,
             .bad_row = header.bad_row,
             .tokens = At<TokenId>(record, layout.result_tokens_offset),
             .path = At<int32_t>(record, layout.result_path_offset),
             .scores_per_token = header.scores_per_token,
             .scores = header.scores_per_token == 0
                           ? nullptr
                           : At<TokenScore>(record, layout.result_scores_offset),
             .cumulative_logprob = header.cumulative_logprob};
  return true;
}

}  // namespace specd
