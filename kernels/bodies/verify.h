// RunTask: one sequence's part of a round. VerifyChain says which draft tokens of a chain stand,
// and the token that follows them.
//
// docs/ALGORITHMS.md, "Chains". Rows are read only as far as the decision goes, and rows after the
// one the final token comes from never matter, whatever they hold (CONTRACT §6). Every group of the
// team computes the same outcome; the leader writes what leaves the task.
//
// Rows may lie in memory that another process writes. If one changes while it is read, the outcome
// is unspecified but safe: no id outside the vocabulary is emitted, and at worst the row is bad.
#pragma once

#include "kernels/bodies/block.h"
#include "kernels/bodies/chain_rows.h"
#include "kernels/bodies/draft.h"
#include "kernels/bodies/judge_place.h"
#include "kernels/bodies/sample.h"
#include "kernels/bodies/score.h"
#include "kernels/core/round.h"

namespace specd {

// Where a task's results go: its rows of RoundBatch's arrays.
struct TaskOutput {
  TokenId* tokens = nullptr;
  int32_t* path = nullptr;  // the accepted nodes
  TokenScore* scores = nullptr;
  int32_t scores_stride = 0;
  DraftSample* samples = nullptr;
  const TokenArray* next_tokens = nullptr;
  int32_t num_next_tokens = 0;
  SlotStates slots;
};

SPECD_INLINE TaskOutput OutputOf(const RoundBatch& batch, int64_t task) {
  TaskOutput output;
  const int64_t first_token = task * batch.tokens_stride;
  if (batch.tokens != nullptr) output.tokens = batch.tokens + first_token;
  if (batch.path != nullptr) output.path = batch.path + first_token;
  if (batch.scores != nullptr) output.scores = batch.scores + first_token * batch.scores_stride;
  output.scores_stride = batch.scores_stride;
  if (batch.samples != nullptr) output.samples = batch.samples + task * batch.samples_stride;
  output.next_tokens = batch.next_tokens;
  output.num_next_tokens = batch.num_next_tokens;
  output.slots = batch.slots;
  return output;
}

// One task in progress. kAtOnce: one whose rows were all read ahead, by the team that was last with
// them (fused_round.h), which leaves what takes another pass over rows to a larger one.
template <Team T, typename CoinSource, bool kAtOnce = false>
class TaskRun {
 public:
  SPECD_HD TaskRun(ChainRows<T, CoinSource>& rows, const TaskOutput& output)
      : rows_(rows), team_(rows.team()), task_(rows.task()), output_(output) {}

  SPECD_HD TaskOutcome Run() {
    if constexpr (kAtOnce) {
      Verify();
      if (!deferred_ && !task_.scores.enabled) WriteBySlot();  // once, when all is known
      return outcome_;
    } else {
      switch (task_.kind) {
        case TaskKind::kVerify:
          Verify();
          WriteBySlot();
          break;
        case TaskKind::kScore:
          Score();
          break;
        case TaskKind::kSampleDraft:
          SampleDraft();
          break;
      }
      // Children of a draft are no tokens of the output: nothing to score.
      if (task_.scores.enabled && task_.kind != TaskKind::kSampleDraft) ScoreTokens();
      return outcome_;
    }
  }

  // kAtOnce: the rest is for others to do, so the outcome ends before it; of scores this does not
  // speak.
  SPECD_HD bool deferred() const { return deferred_; }
  // Where nobody comes who could do the rest, which is left because a row has changed meanwhile.
  SPECD_HD TaskOutcome GiveUp() {
    Fail(OutcomeStatus::kBadTargetRow);
    WriteBySlot();
    return outcome_;
  }
  // The place whose FallenPlace says what its token is replaced from, where that is what is left;
  // otherwise -1.
  SPECD_HD int32_t fallen() const { return fallen_; }

 private:
  SPECD_HD void Verify() {
    outcome_.num_drafts = rows_.NumDrawn();
    if constexpr (!kAtOnce) {
      if (task_.method == VerifyMethod::kBlock) return Block();
    }
    Walk();
  }

  // From place to place, as far as draft tokens stand.
  SPECD_HD void Walk() {
    for (int32_t i = 0; Follow(i, VerdictOf(i)); ++i) continue;
  }

  // Does what a verdict says. Does the walk go on?
  SPECD_HD bool Follow(int32_t i, const PlaceVerdict& place) {
    outcome_.empty_residuals += place.empty_residuals;
    switch (place.verdict) {
      case Verdict::kStands:
        if (!rows_.DraftEndsAt(i)) return Accept(i, rows_.DraftToken(i));
        Fail(OutcomeStatus::kBadTargetRow);  // what said so has changed
        return false;
      case Verdict::kEnds:
        if (!rows_.DraftEndsAt(i)) CountIfInvalid(i);
        Emit(i, place.token);
        return false;
      case Verdict::kBadTarget:
        Fail(OutcomeStatus::kBadTargetRow);
        return false;
      case Verdict::kBadDraft:
        Fail(OutcomeStatus::kBadDraftRow);
        return false;
      case Verdict::kFalls:
        if (!rows_.HasSideChannel()) fallen_ = i;
        deferred_ = true;
        return false;
      case Verdict::kLeft:
        deferred_ = true;
        return false;
      case Verdict::kUnknown:
        break;
    }
    SPECD_CHECK(false);
    return false;
  }

  // Of whoever was last with the rows of the place, or else of this team.
  SPECD_HD PlaceVerdict VerdictOf(int32_t i) {
    const PlaceVerdict ahead = rows_.JudgedAhead(i);
    const bool left = ahead.verdict == Verdict::kFalls || ahead.verdict == Verdict::kLeft;
    const bool known = ahead.verdict != Verdict::kUnknown && (kAtOnce || !left);
    if (known) return ahead;
    const PlaceVerdict place = JudgePlace<kAtOnce>(rows_, i);
    // Rows behind a place that falls may not have been read. If it stands now, the row has changed.
    const bool changed = ahead.verdict == Verdict::kFalls && place.verdict == Verdict::kStands;
    return changed ? PlaceVerdict{.verdict = Verdict::kBadTarget} : place;
  }

  SPECD_HD void Block() {
    BlockWalk<T, CoinSource> walk(rows_);
    walk.Run();
    for (int32_t i = 0; i < walk.num_accepted; ++i) {
      if (!Accept(i, rows_.DraftToken(i))) return;
    }
    const int32_t end = walk.num_accepted;
    const bool at_end = end == walk.num_places();
    if (at_end && walk.end_status != OutcomeStatus::kOk) return Fail(walk.end_status);
    if (!at_end && walk.residual.masses != nullptr) {
      Follow(end, ReplacementAt<false>(rows_, end, walk.residual));
      return;
    }
    // What is drawn from p needs its tiles, which later rows have overwritten.
    const Distribution p = rows_.ReadTarget(end);
    if (p.bad) return Fail(OutcomeStatus::kBadTargetRow);
    if (at_end) {
      Emit(end, Sample(team_, p, rows_.SampleCoinAt(end)));
      return;
    }
    Residual residual = walk.residual;
    residual.p = &p;
    Follow(end, ReplacementAt<false>(rows_, end, residual));
  }

  // Up to the first token that could never be emitted, which ends the task.
  SPECD_HD void Score() {
    for (int32_t i = 0; i < rows_.num_drafts(); ++i) {
      if (!Emit(i, rows_.DraftToken(i))) return;
    }
  }

  SPECD_HD void SampleDraft() {
    const Distribution p = rows_.ReadTarget(0);
    if (p.bad) return Fail(OutcomeStatus::kBadTargetRow);
    const auto coin_of = [&](int32_t j) {
      return rows_.Coin({task_.first_position, task_.round_base,
                         task_.first_node + static_cast<uint32_t>(j), Purpose::kDraft});
    };
    outcome_.num_tokens = SampleChildren(team_, p, task_.sampling, task_.num_children, coin_of,
                                         rows_.workspace().target, output_.samples);
  }

  // The scores of every token, whatever decided about it; rows are read anew.
  SPECD_HD void ScoreTokens() {
    team_.Sync();  // the leader has written the tokens
    for (int32_t i = 0; i < outcome_.num_tokens; ++i) {
      const bool ok =
          ScoreToken(team_, rows_.TargetRow(i), task_.target_scale, task_.target_filters,
                     output_.tokens[i], task_.scores, rows_.workspace().target,
                     output_.scores + int64_t{i} * output_.scores_stride);
      if (ok || task_.kind != TaskKind::kScore) continue;
      outcome_.num_tokens = i;
      return Fail(OutcomeStatus::kBadTargetRow);
    }
  }

  // Whatever decided about it: after a bad row the accepted tokens stand.
  SPECD_HD void WriteBySlot() {
    WriteSlotState();
    if (outcome_.num_tokens == 0 || !team_.leader()) return;
    for (int32_t i = 0; i < output_.num_next_tokens; ++i) {
      output_.next_tokens[i].ids[task_.slot] = last_token_;
    }
  }
  // The tokens are those that are in the output, which may be slow to read.
  SPECD_HD void WriteSlotState() {
    const SlotStates& slots = output_.slots;
    if (slots.kept == nullptr || !team_.leader()) return;
    const auto room = static_cast<uint32_t>(slots.recent_room);
    for (int32_t i = 0; i < outcome_.num_tokens && room > 0; ++i) {
      slots.recent[int64_t{task_.slot} * slots.recent_room + rows_.PositionOf(i) % room] =
          i < outcome_.num_accepted ? rows_.DraftToken(i) : last_token_;
    }
    slots.kept[task_.slot] = rows_.PositionOf(outcome_.num_tokens);
  }

  SPECD_HD bool Accept(int32_t i, TokenId token) {
    if (!Emit(i, token)) return false;
    if (output_.path != nullptr && team_.leader()) output_.path[i] = i;
    ++outcome_.num_accepted;
    return true;
  }
  SPECD_HD void Fail(OutcomeStatus status) { outcome_.status = status; }
  // The last check before an id leaves: false, and the end of the sequence, for one that must not.
  SPECD_HD bool Emit(int32_t i, TokenId token) {
    if (token == kNoToken) {
      Fail(OutcomeStatus::kBadTargetRow);  // the row changed while it was read
      return false;
    }
    if (task_.draft.target_argmax == nullptr && !rows_.MayEmit(i, token)) {
      Fail(OutcomeStatus::kBadToken);
      return false;
    }
    if (IsPointMass(i, token)) ++outcome_.point_masses;
    if (team_.leader()) output_.tokens[i] = token;
    last_token_ = token;
    ++outcome_.num_tokens;
    return true;
  }
  SPECD_HD bool IsPointMass(int32_t i, TokenId token) const {
    if (task_.kind != TaskKind::kVerify || task_.draft.target_argmax != nullptr) return false;
    const Row row = rows_.TargetRow(i);
    return row.place.forced == kNoToken && ElementOf(row, token) == kInfinity;
  }
  SPECD_HD void CountIfInvalid(int32_t i) {
    if (!rows_.MayEmit(i, rows_.DraftToken(i))) ++outcome_.invalid_drafts;
  }

  ChainRows<T, CoinSource>& rows_;
  T& team_;
  const Task& task_;
  const TaskOutput output_;
  TaskOutcome outcome_;
  TokenId last_token_ = kNoToken;
  bool deferred_ = false;
  int32_t fallen_ = -1;
};

// REQUIRES: the target's vocabulary is the draft's where a draft token is kSampled; the workspace
// is for it and for num_nodes; output.tokens has room for num_nodes + 1, and so have the scores.
template <Team T, typename CoinSource>
SPECD_HD TaskOutcome RunTask(T& team, const RoundBatch& batch, const Task& task,
                             const TaskWorkspace& workspace, const CoinSource& coins,
                             const TaskOutput& output) {
  ChainRows<T, CoinSource> rows(team, batch, task, workspace, coins);
  return TaskRun<T, CoinSource>(rows, output).Run();
}

}  // namespace specd
