// Refusal says why a sequence's part of a round was not verified, or ended at a bad row.
//
// RefusalText has the words for it: the field, the error and the remedy. Plain values.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/core/round.h"

namespace specd {

// Why a sequence's part of a round is refused. Only that sequence is not verified. Values are
// SPECD_DETAIL_... of specd.h (ipc/segment/wire_values.cc). The reader of a record finds the errors
// that the record alone shows (ipc/segment/draft_record.h). The verifier finds the errors that
// depend on the sequence.
enum class Refusal : uint32_t {
  kNone = 0,
  // Errors of the record.
  kSequence = 1,
  kCount = 2,
  kKind = 3,
  kTargetRow = 4,
  kDraftRow = 5,
  kFlags = 6,
  kMaskRow = 7,
  kArgmax = 8,
  kDraftTokens = 10,
  kParents = 13,
  kPath = 14,
  // Errors that depend on the sequence.
  kTwice = 9,
  kHostTokens = 11,
  kNoRoom = 12,
  kTree = 15,
  kFinalMask = 16,
  kArgmaxSampled = 17,
  kArgmaxEdited = 18,
  kArgmaxScored = 19,
  kTwoMasks = 20,
  kStagedGrammar = 21,
  // A role that the record needs has no tensor.
  kTargetUnbound = 25,
  kDraftUnbound = 26,
  kMaskUnbound = 27,
  kNoDraftRow = 28,  // the record brings no draft rows
  // These come with kBadDistribution: the sequence ended, because its constraint met a limit.
  kGrammarWays = 22,
  kGrammarMemory = 23,
  kGrammarWork = 24,
  // These come with kBadDistribution too: a row is no distribution (RowFault).
  kTargetNan = 29,
  kTargetNoMass = 30,
  kTargetSum = 31,
  kDraftNan = 32,
  kDraftNoMass = 33,
  kDraftSum = 34,
  kDraftShare = 35,
  kRowChanged = 36,
  kBadToken = 37,
  // Errors of the record: the children of one place do not fit together.
  kSiblingRows = 38,
  kSiblingKinds = 39,
  kSiblingTokens = 40,
  // The record says that its parents lie at a slot, and nothing is bound there.
  kSlotParents = 41,
};
inline constexpr uint32_t kRefusalMax = 41;

struct RefusalEntry {
  Refusal refusal;
  std::string_view text;
};

inline constexpr RefusalEntry kRefusalTexts[] = {
    {Refusal::kNone, "none"},
    {Refusal::kSequence,
     "sequence: no handle that this session could have given out; another engine opened "
     "it, or it is no handle: give those of this engine's specd_open_sequence and "
     "specd_fork"},
    {Refusal::kCount, "num_nodes: more than max_draft"},
    {Refusal::kKind, "kinds: neither SPECD_ONE_HOT, SPECD_SAMPLED nor SPECD_SAMPLED_REST"},
    {Refusal::kTargetRow, "target_rows: an index is not below the number of rows bound"},
    {Refusal::kTargetUnbound,
     "target_rows: SPECD_TARGET_ROWS is not bound; call specd_bind first, or give "
     "target_argmax"},
    {Refusal::kDraftRow,
     "draft_rows: the index of a sampled token is not below the number of rows bound"},
    {Refusal::kDraftUnbound,
     "draft_rows: a token is sampled, and SPECD_DRAFT_ROWS is not bound; call specd_bind "
     "first, or give the token as SPECD_ONE_HOT"},
    {Refusal::kNoDraftRow,
     "draft_rows: a token is sampled, and no draft_rows are given; give the row that it "
     "was drawn from"},
    {Refusal::kFlags, "flags: a flag that this version does not know"},
    {Refusal::kMaskRow, "mask_rows: an index is neither -1 nor below the number of rows bound"},
    {Refusal::kMaskUnbound,
     "mask_rows: SPECD_GRAMMAR_MASK is not bound; call specd_bind first, or give no "
     "mask_rows"},
    {Refusal::kArgmax, "target_argmax: an id outside the vocabulary"},
    {Refusal::kDraftTokens, "flags: SPECD_DRAFTS_BY_SLOT, but SPECD_DRAFT_TOKENS is not bound"},
    {Refusal::kParents, "parents: a parent is neither -1 nor an earlier node"},
    {Refusal::kPath, "parents: a path is longer than max_path; raise max_path of specd_open"},
    {Refusal::kTwice, "sequence: the round has this sequence twice"},
    {Refusal::kHostTokens,
     "bad_words, no_repeat_ngram, thinking_budget, processors and grammars look at tokens "
     "that the host does not know; give draft tokens, or submit the round instead of "
     "staging it, and poll staged rounds before the next one"},
    {Refusal::kNoRoom,
     "drafts: the ids that the sequence's parameters ban, bias or count need more memory "
     "than rounds on the device have: lower max_draft, no_repeat_ngram or what else lists "
     "many, do without penalties, or use backend \"cpu\"; stage fewer sequences, or "
     "submit the round instead of staging it"},
    {Refusal::kTree,
     "parents: verify = token and verify = block are for chains; take auto, tree, traversal, "
     "target_only or exact_match for a tree, or give a chain"},
    {Refusal::kFinalMask,
     "mask_rows: final probabilities cannot be masked; bind logits, or give no mask_rows "
     "and no constraint"},
    {Refusal::kArgmaxSampled,
     "target_argmax: only greedy sequences may bring it; give target_rows"},
    {Refusal::kArgmaxEdited,
     "target_argmax: it cannot be masked, biased or penalised; give target_rows"},
    {Refusal::kArgmaxScored, "target_argmax: it has no logprobs; give target_rows"},
    {Refusal::kTwoMasks,
     "mask_rows: the sequence has a constraint of specd's own; give -1, or open it "
     "without the constraint"},
    {Refusal::kStagedGrammar,
     "sequence: it has a constraint, and a CUDA graph reads no masks of specd's own; "
     "submit its round instead of staging it"},
    {Refusal::kGrammarWays,
     "grammar: the text can go on in more than 4096 ways at once, which is the limit of "
     "the constraint's states; join alternatives that begin alike"},
    {Refusal::kGrammarMemory,
     "grammar: the states that may follow the text need more memory than a constraint may "
     "take (2^18 states, 128 MiB), or than all constraints have left; simplify the "
     "constraint, or run fewer"},
    {Refusal::kGrammarWork,
     "grammar: the next mask takes more work than one mask may "
     "(docs/GRAMMARS.md, \"Limits of a sequence\"); shorten repetitions of alternatives that "
     "begin alike"},
    {Refusal::kTargetNan,
     "target_rows: a row that was needed holds NaN or a negative probability; look at the "
     "forward pass that wrote it"},
    {Refusal::kTargetNoMass,
     "target_rows: a row that was needed has no id above -inf, as it came or after masks, "
     "bans and biases; leave one id allowed"},
    {Refusal::kTargetSum,
     "target_rows: the probabilities of a row that was needed do not sum to 1 within "
     "1e-3; bind the tensor with renormalise, or as logits"},
    {Refusal::kDraftNan,
     "draft_rows: a row that was needed holds NaN or a negative probability; look at the "
     "drafter's forward pass that wrote it"},
    {Refusal::kDraftNoMass,
     "draft_rows: a row that was needed has no id above -inf, as it came or after masks, "
     "bans and biases; leave one id allowed"},
    {Refusal::kDraftSum,
     "draft_rows: the probabilities of a row that was needed do not sum to 1 within 1e-3; "
     "bind the tensor with renormalise, or as logits"},
    {Refusal::kDraftShare,
     "draft_weights, draft_masses: a weight is not in 0 .. 3.4e38, or a mass is 0 or less "
     "or above 3.4e38; give those of specd_sample_draft"},
    {Refusal::kRowChanged,
     "target_rows: a row changed while it was read; write rows only after the completion "
     "of the round"},
    {Refusal::kBadToken,
     "a fault in specd: it drew an id that may not be emitted; please report it"},
    {Refusal::kSiblingRows,
     "draft_rows: two drawn children of one parent name different rows; give both the row of "
     "their place"},
    {Refusal::kSiblingKinds,
     "kinds: SPECD_SAMPLED and SPECD_SAMPLED_REST under one parent; draw all of them with "
     "replacement, or all without"},
    {Refusal::kSiblingTokens,
     "tokens: two children of one parent have one id; only SPECD_SAMPLED children may repeat one, "
     "because each of them is a draw of its own"},
    {Refusal::kSlotParents,
     "flags: SPECD_PARENTS_BY_SLOT, but neither SPECD_DRAFT_PARENTS nor both of "
     "SPECD_DRAFT_NEXT_CHILD and SPECD_DRAFT_NEXT_SIBLING are bound, or SPECD_DRAFTS_BY_SLOT is "
     "missing"},
};

// The field, the error and the remedy: "target_rows: an index is not below the number of rows
// bound".
constexpr std::string_view RefusalText(Refusal refusal) {
  for (const RefusalEntry& entry : kRefusalTexts) {
    if (entry.refusal == refusal) return entry.text;
  }
  return "unknown";
}

// The detail of a task that decided nothing.
constexpr Refusal RefusalOf(OutcomeStatus status) {
  switch (status) {
    case OutcomeStatus::kBadParents:
      return Refusal::kParents;
    case OutcomeStatus::kLongPath:
      return Refusal::kPath;
    case OutcomeStatus::kMixedKinds:
      return Refusal::kSiblingKinds;
    default:
      return Refusal::kNoRoom;
  }
}

// The detail of a bad row; kNone for kOk and for tasks that decided nothing.
constexpr Refusal RefusalOf(OutcomeStatus status, RowFault fault) {
  if (status == OutcomeStatus::kBadToken) return Refusal::kBadToken;
  if (status != OutcomeStatus::kBadTargetRow && status != OutcomeStatus::kBadDraftRow) {
    return Refusal::kNone;
  }
  const bool is_target = status == OutcomeStatus::kBadTargetRow;
  switch (fault) {
    case RowFault::kNan:
      return is_target ? Refusal::kTargetNan : Refusal::kDraftNan;
    case RowFault::kNoMass:
      return is_target ? Refusal::kTargetNoMass : Refusal::kDraftNoMass;
    case RowFault::kSum:
      return is_target ? Refusal::kTargetSum : Refusal::kDraftSum;
    case RowFault::kShare:
      return Refusal::kDraftShare;
    case RowFault::kChanged:
      return Refusal::kRowChanged;
    case RowFault::kNone:
      break;
  }
  return Refusal::kNone;
}

}  // namespace specd
