// RunTask does one sequence's part of a round for a backend.
//
// For a draft, it decides which draft tokens stand and which token follows them.
// docs/ALGORITHMS.md, "Chains" and "Trees". Rows are read only as far as the decision needs them.
// The final token comes from one row, and later rows never matter, even if they are bad (CONTRACT
// §6). Every group of the team computes the same outcome, and the leader writes the results.
//
// Rows may lie in memory that another process writes. If a row changes while it is read, the
// outcome is unspecified but safe: no id outside the vocabulary is emitted, and at worst the row is
// bad.
#pragma once

#include "kernels/bodies/block.h"
#include "kernels/bodies/chain_rows.h"
#include "kernels/bodies/draft.h"
#include "kernels/bodies/judge_place.h"
#include "kernels/bodies/pauses.h"
#include "kernels/bodies/place_look.h"
#include "kernels/bodies/sample.h"
#include "kernels/bodies/score.h"
#include "kernels/bodies/task_output.h"
#include "kernels/bodies/tree_walk.h"
#include "kernels/core/round.h"

namespace specd {

// One task in progress. kAtOnce: all rows of the task were read ahead, and the warp that completed
// them decides (fused_round.h). It leaves work that takes another pass over rows to a larger team.
template <Team T, typename CoinSource, bool kAtOnce = false>
class TaskRun {
 public:
  SPECD_HD TaskRun(ChainRows<T, CoinSource>& rows, const TaskOutput& output)
      : rows_(rows), team_(rows.team()), task_(rows.task()), output_(output), pauses_(output) {
    if (!pauses_.has_begun()) return;
    outcome_ = pauses_.outcome();
    last_token_ = pauses_.last_token();
    last_node_ = pauses_.last_node();
  }

  SPECD_HD TaskOutcome Run() {
    if constexpr (kAtOnce) {
      Verify();
      if (!deferred_ && !task_.scores.enabled) WriteBySlot();  // once, after the final decision
      return outcome_;
    } else {
      switch (task_.kind) {
        case TaskKind::kVerify:
          if (pauses_.phase() == TaskPhase::kScores) break;
          Verify();
          if (!pauses_.paused()) WriteBySlot();
          break;
        case TaskKind::kScore:
          if (pauses_.phase() != TaskPhase::kScores) Score();
          break;
        case TaskKind::kSampleDraft:
          SampleDraft();
          break;
      }
      // Children of a draft are not output tokens, so they have no scores.
      const bool scores = task_.scores.enabled && task_.kind != TaskKind::kSampleDraft;
      if (scores && !rows_.ScoresInTurn() && !pauses_.paused()) ScoreTokens();
      if (pauses_.paused()) pauses_.Keep(team_, outcome_, last_token_, last_node_);
      return outcome_;
    }
  }

  // Only decides, for kVerify: writes tokens, the path and decisions, and nothing by slot.
  SPECD_HD TaskOutcome Decide() {
    Verify();
    return outcome_;
  }

  // kAtOnce: the outcome ends before work that is left to a larger team. Scores are not included.
  SPECD_HD bool deferred() const { return deferred_; }
  // Ends a task whose remaining work no team will do. Work remains then because a row changed
  // meanwhile.
  SPECD_HD TaskOutcome GiveUp() {
    Fail(OutcomeStatus::kBadTargetRow, RowFault::kChanged);
    WriteBySlot();
    return outcome_;
  }
  // The place whose FallenPlace has the facts for the replacement, if only that work is left;
  // otherwise -1.
  SPECD_HD int32_t fallen() const { return fallen_; }

 private:
  SPECD_HD void Verify() {
    if (task_.tree_status != OutcomeStatus::kOk) return Fail(task_.tree_status);
    if (!pauses_.has_begun()) {
      if constexpr (!kAtOnce) outcome_.num_drafts = rows_.NumDrawn();
      if constexpr (KeepsDraws<T>) rows_.RecordPlaces();
    }
    if constexpr (!kAtOnce) {
      if (task_.method == VerifyMethod::kTraversal) return Traverse();
      if (IsTree(task_)) return WalkTree();
      if (task_.method == VerifyMethod::kBlock) return Block();
    }
    Walk();
  }

  // Goes down the tree while children stand.
  SPECD_HD void WalkTree() {
    TreeWalk<T, CoinSource> walk(rows_, pauses_);
    int32_t place = pauses_.place();
    bool resumes = pauses_.phase() == TaskPhase::kChildren;
    while (resumes || !pauses_.Before(TaskPhase::kPlaces, place)) {
      const TreeStep step = resumes ? walk.Resume(place) : walk.At(place);
      if (pauses_.paused()) return;
      resumes = false;
      if (step.child == kRoot) {
        Follow(place, step.verdict);
        return;
      }
      if (!AcceptNode(step.child)) return;
      place = PlaceAfter(step.child);
    }
  }

  SPECD_HD void Traverse() {
    TraversalWalk<T, CoinSource> walk(rows_, pauses_);
    const PlaceVerdict end = walk.Run();
    if (pauses_.paused()) return;
    const NodeSet path = AncestorsOf(task_.draft, walk.place());
    for (int32_t node = 0; node < task_.draft.num_nodes; ++node) {
      if (Holds(path, node) && !AcceptNode(node)) return;
    }
    Follow(walk.place(), end);
  }

  SPECD_HD bool AcceptNode(int32_t node) {
    const int32_t place = PlaceOf(task_.draft, node);
    if (PlaceDecision* record = rows_.RecordOf(place)) {
      record->judged = record->stands = true;
      record->draft = record->token = rows_.DraftToken(node);
    }
    outcome_.invalid_drafts += NumInvalid(rows_, place);
    return Accept(node, LookAtNode(place, node));
  }
  SPECD_HD PlaceLook LookAtNode(int32_t place, int32_t node) const {
    PlaceLook look;
    look.token = rows_.DraftToken(node);
    LookAtToken(rows_, place, &look);
    return look;
  }

  // Goes from place to place while draft tokens stand.
  SPECD_HD void Walk() {
    if constexpr (kAtOnce) {
      WalkAtOnce();
    } else {
      for (int32_t i = pauses_.place(); !pauses_.Before(TaskPhase::kPlaces, i); ++i) {
        const bool goes_on = Follow(i, VerdictOf(i));
        if (rows_.ScoresInTurn() && outcome_.num_tokens > i) ScoreAt(i, last_token_);
        if (!goes_on) return;
      }
    }
  }

  // The same with a look at all places before. Tokens that stand together are accepted together.
  SPECD_HD void WalkAtOnce() {
    LooksAhead<T, CoinSource> looks(rows_);
    outcome_.num_drafts = looks.Request();
    const auto passes = [](const PlaceLook& look) { return look.Passes(); };
    const auto accept = [&](int32_t i, const PlaceLook& look, uint32_t passed) {
      const bool is_mine = (passed >> i % 32 & 1u) != 0;
      if (is_mine) output_.tokens[i] = look.token;
      if (is_mine && output_.path != nullptr) output_.path[i] = i;
      outcome_.point_masses += team_.NumLanes(is_mine && look.is_point);
      outcome_.num_tokens += NumNodes(passed);
      outcome_.num_accepted += NumNodes(passed);
      last_node_ = outcome_.num_accepted - 1;
    };
    team_.InTurn(outcome_.num_drafts + 1, looks, passes, accept, [&](int32_t i, const auto& look) {
      if (look.place.verdict != Verdict::kUnknown) return Apply(i, look);
      return Follow(i, JudgePlace<true>(rows_, i));
    });
  }

  // Applies a verdict. Returns whether the walk continues.
  SPECD_HD bool Follow(int32_t i, const PlaceVerdict& place) {
    return Apply(i, LookAtPlace(rows_, i, place));
  }
  SPECD_HD bool Apply(int32_t i, const PlaceLook& look) {
    const PlaceVerdict& place = look.place;
    outcome_.empty_residuals += place.empty_residuals;
    rows_.RecordVerdict(i, place);
    switch (place.verdict) {
      case Verdict::kStands:
        if (!look.draft_ends) return Accept(i, look);
        // The facts of this verdict have changed.
        Fail(OutcomeStatus::kBadTargetRow, RowFault::kChanged);
        return false;
      case Verdict::kEnds:
        outcome_.invalid_drafts += look.invalid_drafts;
        Emit(look);
        return false;
      case Verdict::kBadTarget:
        Fail(OutcomeStatus::kBadTargetRow, place.fault);
        return false;
      case Verdict::kBadDraft:
        Fail(OutcomeStatus::kBadDraftRow, place.fault);
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

  // The verdict of the warp that completed the place's rows, or else of this team.
  SPECD_HD PlaceVerdict VerdictOf(int32_t i) {
    const PlaceVerdict ahead = rows_.JudgedAhead(i);
    const bool left = ahead.verdict == Verdict::kFalls || ahead.verdict == Verdict::kLeft;
    if (ahead.verdict != Verdict::kUnknown && !left) return ahead;
    const PlaceVerdict place = JudgePlace<false>(rows_, i);
    // If a place falls, later rows may not have been read. If the token stands now, the row has
    // changed.
    const bool changed = ahead.verdict == Verdict::kFalls && place.verdict == Verdict::kStands;
    return changed ? PlaceVerdict{.verdict = Verdict::kBadTarget, .fault = RowFault::kChanged}
                   : place;
  }

  SPECD_HD void Block() {
    BlockWalk<T, CoinSource> walk(rows_, pauses_);
    if (!walk.Run()) return;
    for (int32_t i = 0; i < walk.num_accepted; ++i) {
      if (!Follow(i, {.verdict = Verdict::kStands})) return;
    }
    const int32_t end = walk.num_accepted;
    const bool at_end = end == walk.num_places();
    if (at_end && walk.end_status == OutcomeStatus::kBadTargetRow) {
      Follow(end, {.verdict = Verdict::kBadTarget, .fault = walk.end_fault});
      return;
    }
    if (at_end && walk.end_status == OutcomeStatus::kBadDraftRow) {
      Follow(end, {.verdict = Verdict::kBadDraft, .fault = walk.end_fault});
      return;
    }
    if (!at_end && walk.residual.masses != nullptr) {
      Follow(end, ReplacementAt<false>(rows_, end, walk.residual));
      return;
    }
    // A draw from p needs the row's tiles, which later rows have overwritten.
    const Distribution p = rows_.ReadTarget(end);
    if (p.bad()) return Fail(OutcomeStatus::kBadTargetRow, p.fault);
    if (at_end) {
      const uint64_t coin = rows_.SampleCoinAt(end);
      const TokenId token = Sample(team_, p, coin);
      rows_.RecordDraw(end, p, token, coin, Purpose::kSample, -1);
      Follow(end, {Verdict::kEnds, token});
      return;
    }
    Residual residual = walk.residual;
    residual.p = &p;
    Follow(end, ReplacementAt<false>(rows_, end, residual));
  }

  // Scores tokens up to the first one that cannot be emitted, which ends the task.
  SPECD_HD void Score() {
    for (int32_t i = 0; i < rows_.num_drafts(); ++i) {
      if (!Emit(LookAtNode(i, i))) return;
    }
  }

  SPECD_HD void SampleDraft() {
    const Distribution p = rows_.ReadTarget(0);
    if (p.bad()) return Fail(OutcomeStatus::kBadTargetRow, p.fault);
    const auto coin_of = [&](int32_t j) {
      return rows_.Coin({task_.first_position, task_.round_base,
                         task_.first_node + static_cast<uint32_t>(j), Purpose::kDraft});
    };
    const GumbelPlace place = {task_.seed, task_.first_position + task_.rng_offset};
    outcome_.num_tokens = SampleChildren(team_, p, task_.sampling, task_.num_children, coin_of,
                                         task_.rng == Rng::kSglang ? &place : nullptr,
                                         rows_.workspace().target, output_.samples);
  }

  // Scores every token of the output, unless each was scored in turn. The rows are read again.
  SPECD_HD void ScoreTokens() {
    team_.Sync();  // the leader has written the tokens
    const bool resumes = pauses_.phase() == TaskPhase::kScores;
    for (int32_t i = resumes ? pauses_.place() : 0; i < outcome_.num_tokens; ++i) {
      if (pauses_.Before(TaskPhase::kScores, i)) return;
      const RowFault fault = ScoreAt(i, output_.tokens[i]);
      if (fault == RowFault::kNone || task_.kind != TaskKind::kScore) continue;
      outcome_.num_tokens = i;
      return Fail(OutcomeStatus::kBadTargetRow, fault);
    }
  }

  // Scores token i of the output.
  SPECD_HD RowFault ScoreAt(int32_t i, TokenId token) {
    return ScorePlace(rows_, PlaceOfToken(i), token,
                      output_.scores + int64_t{i} * output_.scores_stride);
  }

  // Writes slot outputs and slot state for any status: after a bad row the accepted tokens remain.
  SPECD_HD void WriteBySlot() {
    if (!team_.leader()) return;
    WriteSlotState();
    if (outcome_.num_tokens == 0) return;
    const SlotCounts counts{.slot = task_.slot,
                            .num_tokens = outcome_.num_tokens,
                            .num_accepted = outcome_.num_accepted,
                            .total_kept = rows_.PositionOfToken(outcome_.num_tokens)};
    for (int32_t i = 0; i < output_.num_slot_outputs; ++i) {
      const SlotOutput& output = output_.slot_outputs[i];
      WriteSlotRow(
          output, counts, [this](int32_t token) { return KeptToken(token); },
          [this](int32_t accepted) { return NodeOfToken(accepted); }, RowOf(output, task_.slot));
    }
  }
  SPECD_HD void WriteSlotState() {
    const SlotStates& slots = output_.slots;
    if (slots.kept == nullptr) return;
    const auto room = static_cast<uint32_t>(slots.recent_room);
    for (int32_t i = 0; i < outcome_.num_tokens && room > 0; ++i) {
      slots.recent[int64_t{task_.slot} * slots.recent_room + rows_.PositionOfToken(i) % room] =
          KeptToken(i);
    }
    slots.kept[task_.slot] = rows_.PositionOfToken(outcome_.num_tokens);
  }
  // Token i of the output. The output itself may be slow to read.
  SPECD_HD TokenId KeptToken(int32_t i) const {
    return i < outcome_.num_accepted ? rows_.DraftToken(NodeOfToken(i)) : last_token_;
  }
  // The node of accepted token i.
  SPECD_HD int32_t NodeOfToken(int32_t i) const {
    if (task_.draft.parents == nullptr) return i;
    int32_t node = last_node_;
    for (int32_t above = outcome_.num_accepted - 1 - i; above > 0; --above) {
      node = ParentOf(task_.draft, node);
    }
    return node;
  }
  // The place of token i of the output.
  SPECD_HD int32_t PlaceOfToken(int32_t i) const {
    return task_.draft.parents == nullptr || i == 0 ? i : PlaceAfter(NodeOfToken(i - 1));
  }

  SPECD_HD bool Accept(int32_t node, const PlaceLook& look) {
    if (!Emit(look)) return false;
    if (output_.path != nullptr && team_.leader()) output_.path[outcome_.num_accepted] = node;
    ++outcome_.num_accepted;
    last_node_ = node;
    return true;
  }
  SPECD_HD void Fail(OutcomeStatus status, RowFault fault = RowFault::kNone) {
    outcome_.status = status;
    outcome_.fault = fault;
  }
  // Emits the next id. If it fails the last check, it returns false and ends the sequence.
  SPECD_HD bool Emit(const PlaceLook& look) {
    if (look.token == kNoToken) {
      Fail(OutcomeStatus::kBadTargetRow, RowFault::kChanged);
      return false;
    }
    if (!look.allowed) {
      Fail(OutcomeStatus::kBadToken);
      return false;
    }
    outcome_.point_masses += look.is_point ? 1 : 0;
    if (team_.leader()) output_.tokens[outcome_.num_tokens] = look.token;
    last_token_ = look.token;
    ++outcome_.num_tokens;
    return true;
  }

  ChainRows<T, CoinSource>& rows_;
  T& team_;
  const Task& task_;
  const TaskOutput output_;
  PausesOf<T> pauses_;
  TaskOutcome outcome_;
  TokenId last_token_ = kNoToken;
  int32_t last_node_ = kRoot;  // the last accepted node
  bool deferred_ = false;
  int32_t fallen_ = -1;
};

// REQUIRES: if a draft token is drawn, target and draft have the same vocabulary; the workspace
// is for that vocabulary and for num_nodes; output.tokens and the scores have room for num_nodes +
// 1.
template <Team T, typename CoinSource>
SPECD_HD TaskOutcome RunTask(T& team, const RoundBatch& batch, const Task& task,
                             const TaskWorkspace& workspace, const CoinSource& coins,
                             const TaskOutput& output) {
  ChainRows<T, CoinSource> rows(team, batch, task, workspace, coins);
  rows.RecordInto(output.decisions);
  return TaskRun<T, CoinSource>(rows, output).Run();
}

}  // namespace specd
