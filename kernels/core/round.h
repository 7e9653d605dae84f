// What one sequence brings to a round, and what it takes away: plain data that ipc decodes,
// speculative packs and a backend reads.
//
// Nothing here owns memory. Pointers inside a DraftChain stay valid for the duration of the round.
#pragma once

#include <cstdint>

#include "kernels/core/numerics.h"
#include "kernels/core/philox.h"
#include "kernels/core/types.h"

namespace specd {

// How a draft token was chosen (CONTRACT §2). A token that was drawn from a distribution must bring
// it (a draft row); calling it kOneHot instead is always lossless but accepts less.
enum class DraftKind : uint8_t { kOneHot = 0, kSampled = 1 };

// The verification methods of CONTRACT §5 for chains. Values are on the wire.
enum class VerifyMethod : uint32_t {
  kAuto = 0,
  kGreedy = 1,
  kExactMatch = 2,
  kToken = 3,
  kBlock = 4,
};

// A chain of draft tokens with the rows that judge it. target_rows has num_drafts + 1 entries;
// draft_rows is read only where kinds[i] == kSampled.
struct DraftChain {
  int32_t num_drafts = 0;
  const TokenId* tokens = nullptr;
  const DraftKind* kinds = nullptr;
  const uint32_t* target_rows = nullptr;
  const uint32_t* draft_rows = nullptr;
  // The side channel: q(tokens[i]) = draft_weights[i] / draft_masses[i], so that a draft row is
  // read only where a residual is needed. Both null: rows are read.
  const float* draft_weights = nullptr;
  const double* draft_masses = nullptr;
  // For greedy only: the num_drafts + 1 argmax ids of the target, in place of its rows.
  const TokenId* target_argmax = nullptr;
};

// ---- what happens to a row before it is a distribution (CONTRACT §3) ----------------------------

// What steps 1 to 6 do to one id. A list of edits is sorted by id, with one entry for each id.
enum EditFlags : uint32_t {
  kEditSeen = 1,        // occurs in prompt, output or draft prefix: the repetition penalty applies
  kEditDisallowed = 2,  // step 1: -inf whatever the row holds
  kEditEnd = 4,         // step 3: an EOS or stop id, -inf while min_tokens is not reached
  kEditBanned = 8,      // steps 5 and 6: -inf
};
struct TokenEdit {
  TokenId id = 0;
  uint32_t flags = 0;
  float bias = 0;      // step 2
  uint32_t count = 0;  // step 4: occurrences in output and draft prefix
};

struct Penalties {
  float repetition = 1;
  float frequency = 0;
  float presence = 0;
};

// Does it matter which tokens were given out, and how often?
SPECD_INLINE constexpr bool Counts(const Penalties& penalties) {
  return penalties.repetition != 1 || penalties.frequency != 0 || penalties.presence != 0;
}

// What holds for every row of a sequence.
struct SequenceEdits {
  const TokenEdit* edits = nullptr;
  int32_t num_edits = 0;
  const uint32_t* allowed = nullptr;  // allowed_token_ids as a mask row; null: all
  Penalties penalties;
};

// What holds for one row: the draft prefix, the place in the output.
struct PlaceEdits {
  const TokenEdit* overrides =
      nullptr;  // each stands in the place of the sequence's edit of its id
  int32_t num_overrides = 0;
  int32_t mask_row = -1;          // of RoundBatch::mask; -1: unconstrained
  bool below_min_tokens = false;  // step 3 applies
  TokenId forced = kNoToken;      // step 6: the only token, over every step above
};

// Steps 9 to 11. All are off by default.
inline constexpr uint64_t kTopPOff = uint64_t{1} << 53;
struct Filters {
  float min_p = -kInfinity;   // float(log2(min_p)): an id stays where (l - max) * scale >= min_p
  int32_t top_k = 0;          // 0: off
  uint64_t top_p = kTopPOff;  // floor(top_p * 2^53)
  bool joint = false;         // all three judge the distribution of step 8
};

// ---- logprobs -----------------------------------------------------------------------------------

enum class ScoreMode : uint32_t {
  kRawLogprob = 0,        // of the row as it arrived, scaled and capped
  kProcessedLogprob = 1,  // after step 11; greedy: after step 6
  kRawLogit = 2,
  kProcessedLogit = 3,
};

struct ScoreRequest {
  bool enabled = false;
  ScoreMode mode = ScoreMode::kRawLogprob;
  int32_t num_top = 0;
  const TokenId* chosen = nullptr;
  int32_t num_chosen = 0;
};

struct TokenScore {
  TokenId id = kNoToken;  // kNoToken where a row has fewer ids above -inf than were asked for
  float value = -kInfinity;
  int32_t rank = 0;  // 1 + the number of ids with a strictly greater value
};

// The scores of one token: itself, the num_top best (value descending, id ascending), the chosen.
SPECD_INLINE constexpr int32_t NumScores(const ScoreRequest& request) {
  return request.enabled ? 1 + request.num_top + request.num_chosen : 0;
}

// ---- drafts that specd draws itself -------------------------------------------------------------

enum class DraftSampling : uint32_t {
  kWithReplacement = 0,
  kWithoutReplacement = 1,
  kTopK = 2,  // the most probable ones: one-hot drafts
};

struct DraftSample {
  TokenId id = kNoToken;
  uint32_t count = 0;  // how often it was drawn
  float weight = 0;    // q(id) = weight / mass, the side channel of a DraftChain
  double mass = 0;
};

// ---- a round ------------------------------------------------------------------------------------

// Why a sequence's part of a round ended as it did (CONTRACT §6).
enum class OutcomeStatus : uint32_t {
  kOk = 0,
  kBadTargetRow = 1,  // NaN, or no mass, in a target row the decision needed
  kBadDraftRow = 2,   // the same in a draft row (or its side channel) the decision needed
  kBadToken = 3,      // the id to be emitted is outside the vocabulary or masked: a fault of ours
  kNoRoom = 4,        // the backend has no room for the task's lists of ids: nothing was decided
};

// The kernels' answer for one sequence: num_accepted drafts, then (status kOk) one final token.
// With a bad row the accepted tokens before it stand and there is no final token.
struct ChainOutcome {
  OutcomeStatus status = OutcomeStatus::kOk;
  int32_t num_accepted = 0;
  int32_t num_tokens = 0;        // num_accepted, plus 1 when status is kOk
  int32_t num_drafts = 0;        // of kVerify: the draft tokens before the first kNoToken
  uint32_t empty_residuals = 0;  // residual rounded to nothing: sampled p instead
  uint32_t invalid_drafts = 0;   // drafts outside the vocabulary or masked that were rejected
  uint32_t point_masses = 0;     // tokens that are +inf in their row
};

// Why a sequence ended (CONTRACT §7). Values are on the wire and in specd.h.
enum class FinishReason : uint32_t { kNone = 0, kStop = 1, kLength = 2, kAbort = 3, kError = 4 };

// What is to be done with the rows of a task.
enum class TaskKind : uint32_t {
  kVerify = 0,       // the chain is verified: tokens are confirmed
  kScore = 1,        // chain.tokens[i] is scored in target row i; nothing is sampled
  kSampleDraft = 2,  // num_children draft tokens are drawn from target row 0
};

// One sequence's work. The coins are keyed by (seed; position, round_base, node, purpose) and never
// by the place in the batch (CONTRACT §4).
struct ChainTask {
  DraftChain chain;
  TaskKind kind = TaskKind::kVerify;
  VerifyMethod method = VerifyMethod::kGreedy;  // never kAuto here
  float target_scale = 0;  // float(log2(e) / temperature), computed once in double
  float draft_scale = 0;   // the same for the temperature the drafter declares it used
  uint64_t seed = 0;
  uint32_t first_position = 0;  // absolute output position of the first token this round confirms
  uint32_t round_base = 0;      // kept output tokens when the round starts
  uint32_t slot = 0;            // the sequence's, wherever something lies by slot

  // ---- what only the processor that runs the round knows (kernels/bodies/resolve.h)
  // The draft tokens are the first num_drafts ids of row `slot` of RoundBatch::draft_tokens, or
  // those before the first kNoToken there; chain.tokens is null.
  bool drafts_by_slot = false;
  // Rounds of the sequence were under way when this task was made. first_position, round_base and
  // the counts in `edits` are of the state before them; RoundBatch::slots has what they confirmed.
  bool continues = false;
  // Where one of the two is set, places have neither below_min_tokens nor overrides nor a forced
  // token, and this says where step 3 ends.
  uint32_t min_tokens = 0;

  SequenceEdits edits;
  const PlaceEdits* places = nullptr;  // num_drafts + 1 entries; null: nothing
  Filters target_filters;
  Filters draft_filters;  // the filters the drafter declares it used
  // The draft tokens were drawn from rows with the edits and masks of their places, as kSampleDraft
  // does where it is given any: then they belong to q, in the residual as much as in q(x).
  bool draft_edits = false;
  ScoreRequest scores;

  const InjectedCoin* coins = nullptr;  // by tests and replay
  int32_t num_coins = 0;

  // For kSampleDraft: child j has the coin of node first_node + j.
  DraftSampling sampling = DraftSampling::kWithReplacement;
  int32_t num_children = 0;
  uint32_t first_node = 0;
};

// Is there something of a task that it leaves to the processor? kVerify only.
SPECD_INLINE constexpr bool NeedsResolve(const ChainTask& task) {
  return task.drafts_by_slot || task.continues;
}

// What rounds leave of each sequence for rounds that were made before their answers were known.
// Memory of the processor that runs them, in the order of slots; null: nothing is left.
struct SlotStates {
  uint32_t* kept = nullptr;  // the absolute position behind the last confirmed token
  // The confirmed token at position p is recent[slot * recent_room + p % recent_room], for the last
  // recent_room of them.
  TokenId* recent = nullptr;
  int32_t recent_room = 0;
};

// A round over num_tasks sequences. outcomes[i] and tokens[i * tokens_stride ...] belong to
// tasks[i]; tokens_stride >= max_draft + 1.
struct RoundBatch {
  TensorView target;
  TensorView draft;  // num_rows == 0 when no draft tensor is bound
  const ChainTask* tasks = nullptr;
  int32_t num_tasks = 0;
  ChainOutcome* outcomes = nullptr;
  TokenId* tokens = nullptr;
  int32_t tokens_stride = 0;
  MaskView mask;
  // The scores of token j of task i begin at scores[(i * tokens_stride + j) * scores_stride];
  // scores_stride >= NumScores of every task.
  TokenScore* scores = nullptr;
  int32_t scores_stride = 0;
  // The children of task i begin at samples[i * samples_stride].
  DraftSample* samples = nullptr;
  int32_t samples_stride = 0;
  // Of a kVerify task with any tokens the last one, which the sequence's next forward reads, is
  // written to ids[slot] of each of these. Nothing else in them is touched.
  const TokenArray* next_tokens = nullptr;
  int32_t num_next_tokens = 0;
  TokenRows draft_tokens = {};  // for ChainTask::drafts_by_slot
  SlotStates slots = {};        // for ChainTask::continues; written for every kVerify task
};

// What goes to next tokens of a task that has been run; null: nothing does.
inline const TokenId* NextTokenOf(const RoundBatch& batch, int32_t task) {
  const int32_t num_tokens = batch.outcomes[task].num_tokens;
  if (batch.tasks[task].kind != TaskKind::kVerify || num_tokens == 0) return nullptr;
  return batch.tokens + int64_t{task} * batch.tokens_stride + num_tokens - 1;
}

// ---- library calls ------------------------------------------------------------------------------

// One row in, one row out: softmax, renormalised and masked rows.
struct RowTransform {
  uint32_t row = 0;
  float scale = 0;  // log2(e) / temperature
  Filters filters;
  bool as_logits =
      false;  // out is the element itself, -inf outside the filters; else its probability
  float* out = nullptr;  // vocab_size floats
};

struct TransformBatch {
  TensorView source;
  const RowTransform* rows = nullptr;
  int32_t num_rows = 0;
  OutcomeStatus* statuses =
      nullptr;  // kOk or kBadTargetRow (out is then all NaN), one for each row
};

}  // namespace specd
