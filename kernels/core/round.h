// RoundBatch describes a round for a backend: one task for each sequence, the tensors, and the
// places for the answers.
//
// speculative/ makes tasks from the input of sequences (kernels/core/sequence_round.h). Nothing
// here owns memory; pointers stay valid for the duration of the round.
#pragma once

#include <cstdint>

#include "kernels/core/decision.h"
#include "kernels/core/draft.h"
#include "kernels/core/edits.h"
#include "kernels/core/numerics.h"
#include "kernels/core/philox.h"
#include "kernels/core/slot_output.h"
#include "kernels/core/slot_tree.h"
#include "kernels/core/token_score.h"
#include "kernels/core/types.h"

namespace specd {

// Steps 9 to 11 of CONTRACT §3. All are off by default.
inline constexpr uint64_t kTopPOff = uint64_t{1} << 53;
struct Filters {
  float min_p = -kInfinity;   // float(log2(min_p)): an id stays if (l - max) * scale >= min_p
  int32_t top_k = 0;          // 0: off
  uint64_t top_p = kTopPOff;  // floor(top_p * 2^53)
  bool joint = false;         // all three filters apply to the distribution of step 8
};

// What a lossy method accepts (CONTRACT §5). A method reads the numbers that are its own.
struct LossyRule {
  double epsilon = 0;          // typical
  double delta = 0;            // typical, relaxed
  double single = 1;           // threshold
  double acc = 1;              // threshold
  int32_t num_best = 0;        // relaxed
  bool only_thoughts = false;  // relaxed: only at places with PlaceEdits::in_thought
  bool is_greedy = false;      // relaxed, synthetic: the target's token is the argmax
  // synthetic: the rate of each depth; the last one holds for all deeper places.
  const float* rates = nullptr;
  int32_t num_rates = 0;
};

// ---- drafts that specd draws itself -------------------------------------------------------------

enum class DraftSampling : uint32_t {
  kWithReplacement = 0,
  kWithoutReplacement = 1,
  kTopK = 2,   // the most probable ids: one-hot drafts
  kMixed = 3,  // the k - 1 most probable ids as one-hot drafts, and one draw from the rest
};

// The kind of child `index` of those that are drawn (CONTRACT §2).
SPECD_INLINE constexpr DraftKind KindOfChild(DraftSampling sampling, int32_t num_children,
                                             int32_t index) {
  switch (sampling) {
    case DraftSampling::kWithReplacement:
      return DraftKind::kSampled;
    case DraftSampling::kWithoutReplacement:
      return DraftKind::kSampledRest;
    case DraftSampling::kTopK:
      return DraftKind::kOneHot;
    case DraftSampling::kMixed:
      return index + 1 < num_children ? DraftKind::kOneHot : DraftKind::kSampledRest;
  }
  return DraftKind::kOneHot;
}

struct DraftSample {
  TokenId id = kNoToken;
  uint32_t count = 0;  // how often it was drawn
  float weight = 0;    // weight / mass is the id's proposal, the side channel of a Draft
  DraftKind kind = DraftKind::kOneHot;
  double mass = 0;
};

// ---- a round ------------------------------------------------------------------------------------

// Why a sequence's part of a round ended (CONTRACT §6).
enum class OutcomeStatus : uint32_t {
  kOk = 0,
  kBadTargetRow = 1,  // a target row that the decision needed is no distribution (RowFault)
  kBadDraftRow = 2,   // the same for a draft row, or its side channel
  kBadToken = 3,      // the id to emit is outside the vocabulary or masked: an error of ours
  // Nothing was decided.
  kNoRoom = 4,      // the backend has no room for the task's lists of ids
  kBadParents = 5,  // the tree at the slot has a TreeFault
  kLongPath = 6,
  kMixedKinds = 7,
};

SPECD_INLINE constexpr bool IsUndecided(OutcomeStatus status) {
  return status >= OutcomeStatus::kNoRoom;
}
SPECD_INLINE constexpr OutcomeStatus StatusOf(TreeFault fault) {
  switch (fault) {
    case TreeFault::kNone:
      return OutcomeStatus::kOk;
    case TreeFault::kParents:
      return OutcomeStatus::kBadParents;
    case TreeFault::kPath:
      return OutcomeStatus::kLongPath;
    case TreeFault::kKinds:
      return OutcomeStatus::kMixedKinds;
  }
  return OutcomeStatus::kBadParents;
}

// The kernels' answer for one sequence: num_accepted draft tokens, then one final token if the
// status is kOk. If a row is bad, the accepted tokens before it are kept, and there is no final
// token. The bad row is then that of place num_tokens, and `fault` says what is wrong with it.
struct TaskOutcome {
  OutcomeStatus status = OutcomeStatus::kOk;
  int32_t num_accepted = 0;
  int32_t num_tokens = 0;        // num_accepted, plus 1 when status is kOk
  int32_t num_drafts = 0;        // kVerify: the nodes whose path lies in the vocabulary
  uint32_t empty_residuals = 0;  // the residual was rounded to nothing, so p was sampled
  uint32_t invalid_drafts = 0;   // replaced draft tokens that were masked or outside the vocabulary
  uint32_t point_masses = 0;     // tokens that are +inf in their row
  RowFault fault = RowFault::kNone;  // of kBadTargetRow and kBadDraftRow
};

// The parts of a kVerify task: judging its places, block verification's way from the end of the
// draft to the token that stands, the scores of its tokens, and judging the children of one place
// of a tree.
enum class TaskPhase : uint32_t { kPlaces = 0, kWayDown = 1, kScores = 2, kChildren = 3 };

// The state of a block verification between two places (BlockWalk). A traversal keeps the fault of
// its place alone.
struct BlockProgress {
  int32_t num_places = 0;
  OutcomeStatus end_status = OutcomeStatus::kOk;
  RowFault end_fault = RowFault::kNone;
  double prefix = 1;
};

// How far a kVerify or kScore task has come that runs in several calls of Backend::Run. The caller
// gives an empty one to the first call. A kSampleDraft task has one row and never pauses.
struct PausedTask {
  bool is_paused = false;  // the last call has left work; the caller clears it before each call
  bool has_begun = false;
  TaskPhase phase = TaskPhase::kPlaces;
  int32_t place = 0;
  int32_t num_looks = 0;  // at children of trees and at leaves
  TokenId last_token = kNoToken;
  int32_t last_node = kRoot;  // the last accepted node
  TaskOutcome outcome;
  BlockProgress block;
};

// The work on the rows of a task.
enum class TaskKind : uint32_t {
  kVerify = 0,       // the draft is verified: tokens are confirmed
  kScore = 1,        // draft.tokens[i] is scored in target row i; nothing is sampled
  kSampleDraft = 2,  // num_children draft tokens are drawn from target row 0
};

// One sequence's work. The coins are keyed by (seed; position, round_base, node, purpose), never by
// the index in the batch (CONTRACT §4).
struct Task {
  Draft draft;
  TaskKind kind = TaskKind::kVerify;
  VerifyMethod method = VerifyMethod::kGreedy;  // never kAuto here
  float target_scale = 0;  // float(log2(e) / temperature), computed once in double
  float draft_scale = 0;   // the same for the temperature that the drafter declares
  uint64_t seed = 0;
  uint32_t first_position = 0;  // absolute output position of the first token this round confirms
  uint32_t round_base = 0;      // the kept output tokens when the round starts
  uint32_t slot = 0;            // the sequence's slot; tensors by slot use it

  // ---- facts that only the processor of the round knows (kernels/bodies/resolve.h)
  // The draft tokens are the first num_nodes ids of row `slot` of RoundBatch::draft_tokens;
  // draft.tokens is null. An id outside the vocabulary ends its path.
  bool drafts_by_slot = false;
  // With drafts_by_slot: the draft is a tree, whose parents are made of row `slot` of
  // RoundBatch::draft_tree; draft.parents is null. draft.draft_rows has the rows of places 0 ..
  // num_nodes - 1, not of nodes, because only the processor knows the places of nodes. The flag
  // stays when the task is completed: draft rows of such a task are not read ahead.
  bool parents_by_slot = false;
  // kOk, or the processor found no tree at the slot, and the task decides nothing.
  OutcomeStatus tree_status = OutcomeStatus::kOk;
  // True if rounds of the sequence were still running when the host made this task. first_position,
  // round_base and the counts in `edits` describe the state before those rounds. RoundBatch::slots
  // holds their confirmed tokens.
  bool continues = false;
  // The position at which step 3 ends. If drafts_by_slot or continues is set, places have neither
  // below_min_tokens nor overrides nor a forced token.
  uint32_t min_tokens = 0;

  SequenceEdits edits;
  const PlaceEdits* places = nullptr;  // one for each place; null: nothing
  Filters target_filters;
  Filters draft_filters;  // the filters that the drafter declares
  // The draft tokens were drawn from rows with the edits and masks of their places, as kSampleDraft
  // draws them if it gets any. The edits and masks are then part of q, both in the residual and in
  // q(x).
  bool draft_edits = false;
  ScoreRequest scores;
  LossyRule lossy;  // of a lossy method
  // kSglang: the token at output position i has SGLang's position i + rng_offset.
  Rng rng = Rng::kPhilox;
  uint32_t rng_offset = 0;

  const InjectedCoin* coins = nullptr;  // set by tests, replay and library calls
  int32_t num_coins = 0;

  // For kSampleDraft: child j has the coin of node first_node + j.
  DraftSampling sampling = DraftSampling::kWithReplacement;
  int32_t num_children = 0;
  uint32_t first_node = 0;
};

// Whether the draft is verified as a tree (kernels/bodies/tree_walk.h). token and block verify
// chains only, and tree and traversal of a chain are token and block.
SPECD_INLINE constexpr bool IsTree(const Task& task) {
  return task.draft.parents != nullptr || task.parents_by_slot ||
         task.method > VerifyMethod::kBlock;
}

// Whether the processor has to complete the task before it runs. kVerify only.
SPECD_INLINE constexpr bool NeedsResolve(const Task& task) {
  return task.drafts_by_slot || task.continues;
}

// The state of sequences that rounds leave for later rounds, whose tasks were made before the
// answers were known. The memory belongs to the processor that runs the rounds, in the order of
// slots. Null: rounds leave no state.
struct SlotStates {
  uint32_t* kept = nullptr;  // the absolute position after the last confirmed token
  // The last recent_room confirmed tokens: the token at position p is recent[slot * recent_room + p
  // % recent_room].
  TokenId* recent = nullptr;
  int32_t recent_room = 0;
};

// A round over num_tasks sequences. outcomes[i], tokens[i * tokens_stride ...] and
// path[i * tokens_stride ...] belong to tasks[i]; tokens_stride >= BackendLimits::max_output.
struct RoundBatch {
  TensorView target;
  TensorView draft;  // num_rows == 0 when no draft tensor is bound
  const Task* tasks = nullptr;
  int32_t num_tasks = 0;
  TaskOutcome* outcomes = nullptr;
  TokenId* tokens = nullptr;
  int32_t* path = nullptr;  // the accepted nodes, from the root on; null: not requested
  int32_t tokens_stride = 0;
  MaskView mask;
  // The scores of token j of task i begin at scores[(i * tokens_stride + j) * scores_stride];
  // scores_stride >= NumScores of every task.
  TokenScore* scores = nullptr;
  int32_t scores_stride = 0;
  // The children of task i begin at samples[i * samples_stride].
  DraftSample* samples = nullptr;
  int32_t samples_stride = 0;
  // If a kVerify task has any tokens, the row of its slot is written in each of these arrays. The
  // sequence's next forward reads it. Other rows are not touched.
  const SlotOutput* slot_outputs = nullptr;
  int32_t num_slot_outputs = 0;
  TokenRows draft_tokens = {};  // for Task::drafts_by_slot
  TreeRows draft_tree = {};     // for Task::parents_by_slot
  SlotStates slots = {};        // for Task::continues; every kVerify task writes its slot
  // The decisions of task i begin at decisions[i * decisions_stride], one for each place; null: not
  // recorded. The caller clears them before the round.
  PlaceDecision* decisions = nullptr;
  int32_t decisions_stride = 0;
  // If it is set, the batch has one task, and a processor may pause it after `rows_max` places or
  // children of a place. The next Run of the backend then has this batch again. Null: every task
  // runs to its end.
  PausedTask* progress = nullptr;
  int32_t rows_max = 0;
};

// The part of a batch that has `count` of its tasks, from `first` on. Their answers go where those
// of the whole batch would. REQUIRES: no progress.
inline RoundBatch TasksOf(const RoundBatch& batch, int64_t first, int32_t count) {
  RoundBatch part = batch;
  const int64_t first_token = first * batch.tokens_stride;
  part.tasks = batch.tasks + first;
  part.num_tasks = count;
  part.outcomes = batch.outcomes + first;
  if (batch.tokens != nullptr) part.tokens = batch.tokens + first_token;
  if (batch.path != nullptr) part.path = batch.path + first_token;
  if (batch.scores != nullptr) part.scores = batch.scores + first_token * batch.scores_stride;
  if (batch.samples != nullptr) part.samples = batch.samples + first * batch.samples_stride;
  if (batch.decisions != nullptr) part.decisions = batch.decisions + first * batch.decisions_stride;
  return part;
}

// Whether a completed task writes slot outputs.
inline bool WritesSlot(const RoundBatch& batch, int32_t task) {
  return batch.tasks[task].kind == TaskKind::kVerify && batch.outcomes[task].num_tokens > 0;
}
// Writes a completed task's row of a slot output to `row`. REQUIRES: WritesSlot; the host made the
// whole task; a tree has a path.
SPECD_INLINE void WriteSlotRowOf(const RoundBatch& batch, int32_t task, const SlotOutput& output,
                                 void* row) {
  const Task& of = batch.tasks[task];
  const TaskOutcome& outcome = batch.outcomes[task];
  SPECD_CHECK(!of.continues && (batch.path != nullptr || of.draft.parents == nullptr));
  const int64_t first = int64_t{task} * batch.tokens_stride;
  const SlotCounts counts{
      .slot = of.slot,
      .num_tokens = outcome.num_tokens,
      .num_accepted = outcome.num_accepted,
      .total_kept = of.first_position + static_cast<uint32_t>(outcome.num_tokens)};
  WriteSlotRow(
      output, counts, [&](int32_t i) { return batch.tokens[first + i]; },
      // Without a path the accepted nodes are the first ones: drafts are chains.
      [&](int32_t i) { return batch.path == nullptr ? i : batch.path[first + i]; }, row);
}

// ---- library calls ------------------------------------------------------------------------------

// One row in, one row out: softmax, renormalised and masked rows.
struct RowTransform {
  uint32_t row = 0;
  float scale = 0;  // log2(e) / temperature
  Filters filters;
  // False: out is the probability. True: out is the element itself, with -inf outside the filters.
  bool as_logits = false;
  float* out = nullptr;  // vocab_size floats
};

struct TransformBatch {
  TensorView source;
  const RowTransform* rows = nullptr;
  int32_t num_rows = 0;
  // One for each row: kOk, or kBadTargetRow, with `out` all NaN.
  OutcomeStatus* statuses = nullptr;
};

}  // namespace specd
