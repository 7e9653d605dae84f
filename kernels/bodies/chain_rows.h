// ChainRows gives the rows, coins and draft tokens of one task to every verification method. Target
// rows are named by place, draft rows and draft tokens by node. In a chain, node i is proposed at
// place i.
#pragma once

#include "kernels/bodies/read_ahead.h"
#include "kernels/bodies/truncate.h"
#include "kernels/bodies/zero_step.h"
#include "kernels/core/decision.h"
#include "kernels/core/philox.h"
#include "kernels/core/round.h"

namespace specd {

// The facts of a distribution that remain when its workspace is used for another row.
struct RowFacts {
  TokenId point = kNoToken;
  float max = 0;
  float scale = 0;
  float cut_value = 0;
  TokenId cut_last = 0;
  bool has_cut = false;
  bool below_min_tokens = false;
  double mass = 0;
};

// A place whose sampled token falls, with the facts for its replacement (residual_pass.h).
struct FallenPlace {
  RowFacts target;
  RowFacts draft;
  const float* target_peaks = nullptr;  // the peaks of the target row without its cut
  uint32_t target_row = 0;              // an index into the target tensor
  uint32_t draft_row = 0;
  bool plain = false;  // both rows have one type, and only a cut changes their elements
};
static_assert(sizeof(FallenPlace) <= kPlaceBytes);

SPECD_INLINE FallenPlace* FallenPlaceAt(const TaskWorkspace& workspace, int32_t place) {
  return static_cast<FallenPlace*>(workspace.places) + place;
}

// q of one draft token: its weight and the row's mass. A one-hot draft has weight 1 of mass 1.
struct DraftShare {
  RowFault fault = RowFault::kNone;
  float weight = 1;
  double mass = 1;

  SPECD_INLINE bool bad() const { return fault != RowFault::kNone; }
};

// CoinSource maps a CoinKey to an integer in [0, 2^53).
template <Team T, typename CoinSource>
class ChainRows {
 public:
  SPECD_HD ChainRows(T& team, const RoundBatch& batch, const Task& task,
                     const TaskWorkspace& workspace, const CoinSource& coins)
      : team_(team), batch_(batch), task_(task), workspace_(workspace), coins_(coins) {}

  // Has the decisions recorded: an array with an element for each place.
  SPECD_HD void RecordInto(PlaceDecision* decisions) { decisions_ = decisions; }
  SPECD_HD bool is_recorded() const { return KeepsDraws<T> && decisions_ != nullptr; }
  // The record of place i for one worker; null if none is kept.
  SPECD_HD PlaceDecision* RecordOf(int32_t i) const {
    if constexpr (KeepsDraws<T>) {
      if (is_recorded() && team_.leader()) return decisions_ + i;
    }
    return nullptr;
  }
  SPECD_HD void RecordPlaces() const {
    const bool is_chain = task_.draft.parents == nullptr;
    for (int32_t i = 0; i <= num_drafts(); ++i) {
      PlaceDecision* const record = RecordOf(i);
      if (record == nullptr) return;
      record->position = PositionOf(i);
      if (i == num_drafts()) return;
      record->node = DraftToken(i);
      record->parent = ParentOf(task_.draft, i);
      if (is_chain) record->draft = record->node;
    }
  }
  SPECD_HD void RecordVerdict(int32_t i, const PlaceVerdict& place) const {
    if (PlaceDecision* record = RecordOf(i)) {
      record->judged = true;
      record->stands = place.verdict == Verdict::kStands;
      record->bad_target = place.verdict == Verdict::kBadTarget;
      record->bad_draft = place.verdict == Verdict::kBadDraft;
      record->token = record->stands ? DraftToken(i) : place.token;
    }
  }
  SPECD_HD void RecordShares(int32_t i, const Distribution& p, const DraftShare& q) const {
    if (PlaceDecision* record = RecordOf(i)) {
      RecordTarget(p, DraftToken(i), record);
      record->q_weight = q.weight;
      record->q_mass = q.mass;
    }
  }
  // Records p of a draft token, and why it is 0.
  SPECD_HD void RecordTarget(const Distribution& p, TokenId token, PlaceDecision* record) const {
    record->p_weight = WeightOf(p, token);
    record->p_mass = p.mass;
    const bool is_zero = record->p_weight == 0 && IsInVocabulary(token);
    record->zero_step = is_zero ? ZeroStepOf(p, task_.target_filters, token) : ZeroStep::kNone;
  }
  // Records the draw that the team has just made. residual_mass below 0: from p itself.
  SPECD_HD void RecordDraw(int32_t i, const Distribution& p, TokenId token, uint64_t coin,
                           Purpose purpose, double residual_mass) const {
    if constexpr (KeepsDraws<T>) {
      PlaceDecision* record = RecordOf(i);
      if (record == nullptr) return;
      record->draw_coin = coin;
      record->draw_purpose = purpose;
      record->draw_interval = IntervalOf(team_.draw);
      record->residual_mass = residual_mass;
      record->token_weight = WeightOf(p, token);
      record->p_mass = p.mass;
    }
  }

  // The target row of place i was read ahead, and is this row of the tensor. Spares the loads that
  // would say so.
  SPECD_HD void NoteComplete(int32_t i, uint32_t target_row) {
    complete_place_ = i;
    complete_row_ = target_row;
  }

  SPECD_HD Row TargetRow(int32_t i) const {
    const uint32_t index = i == complete_place_ ? complete_row_ : task_.draft.target_rows[i];
    return Edited(RowAt(batch_.target, index), i);
  }
  SPECD_HD RowWorkspace TargetWorkspace(int32_t i) const {
    if (i != complete_place_) return WithAhead(workspace_.target, TargetTaskRow(i));
    RowWorkspace workspace = workspace_.target;
    workspace.ahead = AheadOf(TargetTaskRow(i));
    return workspace;
  }
  template <bool kNarrow = false>
  SPECD_HD Distribution ReadTarget(int32_t i) {
    AskForRawSums(i);
    return ReadDistribution<kNarrow>(team_, TargetRow(i), task_.target_scale, task_.target_filters,
                                     TargetWorkspace(i));
  }

  // Whether a token is scored as soon as it is known, while its row is in the cache.
  SPECD_HD bool ScoresInTurn() const {
    if constexpr (SumsRaw<T>) {
      return task_.scores.enabled && task_.kind == TaskKind::kVerify && !IsTree(task_) &&
             task_.method != VerifyMethod::kBlock;
    } else {
      return false;
    }
  }
  // Call it before the pass over the target row of place i. If raw scores follow and nothing
  // changes the row, the same pass makes their sums.
  SPECD_HD void AskForRawSums(int32_t i) {
    if constexpr (SumsRaw<T>) {
      if (!ScoresInTurn() || !IsRaw(task_.scores.mode)) return;
      const Row row = TargetRow(i);
      if (!row.plain() || row.place.forced != kNoToken) return;
      team_.raw = {ScaleOf(row, kLog2E), workspace_.raw_sums};
      raw_place_ = i;
    }
  }
  // The workspace for the scores of place i, with the results of that pass if they serve.
  SPECD_HD RowWorkspace ScoreWorkspace(int32_t i, AheadFacts* facts) const {
    RowWorkspace workspace = workspace_.target;
    if (i != raw_place_) return workspace;
    const RowStats stats{.maxima = workspace.stats.maxima,
                         .sums = workspace_.raw_sums,
                         .peaks = workspace.stats.peaks};
    const int32_t num_tiles = NumTiles(batch_.target.vocab_size);
    const float scale = ScaleOf(TargetRow(i), kLog2E);
    facts->max = MaxOfTiles(team_, stats, num_tiles);
    facts->mass = MassOfTiles(team_, stats, num_tiles, {facts->max, scale});
    workspace.ahead.facts = facts;
    workspace.ahead.stats = stats;
    return workspace;
  }

  SPECD_HD Row DraftRow(int32_t node) const {
    const RowView view = RowAt(batch_.draft, task_.draft.draft_rows[node]);
    if (task_.draft_edits) return Edited(view, PlaceOf(task_.draft, node));
    Row row;
    row.view = view;
    return row;
  }
  template <bool kNarrow = false>
  SPECD_HD Distribution ReadDraft(int32_t node) {
    return ReadDistribution<kNarrow>(team_, DraftRow(node), task_.draft_scale, task_.draft_filters,
                                     WithAhead(workspace_.draft, DraftTaskRow(node)));
  }

  // The verdict of the pass that read the target row of place i ahead. A team that keeps records
  // judges by itself, because the numbers behind that verdict are not kept.
  SPECD_HD PlaceVerdict JudgedAhead(int32_t i) const {
    if constexpr (KeepsDraws<T>) {
      return {};
    } else {
      if (workspace_.ahead == nullptr || !IsReadAhead(task_, TargetTaskRow(i))) return {};
      return AheadOf(TargetTaskRow(i)).facts->place;
    }
  }
  // The facts with that verdict. REQUIRES: rows are read ahead, and the draft does not end before
  // place i.
  SPECD_HD AheadFacts FactsAhead(int32_t i) const {
    AheadFacts facts = *AheadOf(TargetTaskRow(i)).facts;
    const bool forced = task_.places != nullptr && task_.places[i].forced != kNoToken;
    if (forced) facts.place.verdict = Verdict::kUnknown;  // the row was not read
    return facts;
  }
  // REQUIRES: rows are read ahead, and this row was.
  SPECD_HD void NoteVerdict(int32_t i, const PlaceVerdict& verdict) {
    team_.Publish(verdict, &AheadOf(TargetTaskRow(i)).facts->place);
    team_.Sync();
  }
  // REQUIRES: rows are read ahead.
  SPECD_HD AheadRead AheadOf(int32_t task_row) const {
    return AheadAt(workspace_.ahead, task_row, batch_.target.vocab_size);
  }

  SPECD_HD bool HasSideChannel() const { return task_.draft.draft_weights != nullptr; }
  // q(x_i) from the side channel. If the weight or the mass is not valid, the draft row is bad.
  SPECD_HD DraftShare SideChannel(int32_t i) const {
    DraftShare share;
    share.weight = task_.draft.draft_weights[i];
    share.mass = task_.draft.draft_masses[i];
    const bool weight_ok = share.weight >= 0.0f && share.weight < kInfinity;
    const bool mass_ok = share.mass > 0.0 && share.mass <= 0x1.fffffep+127;
    if (!weight_ok || !mass_ok) share.fault = RowFault::kShare;
    return share;
  }

  // q(x_i) from a draft row.
  SPECD_HD DraftShare ShareOf(const Distribution& q, int32_t i) const {
    DraftShare share;
    share.fault = q.fault;
    share.mass = q.mass;
    if (!q.bad()) share.weight = Weight(q, DraftToken(i));
    return share;
  }

  // WeightOf, with the same value in the whole team's group even if the row changes meanwhile.
  SPECD_HD float Weight(const Distribution& distribution, TokenId id) const {
    return team_.Agree(WeightOf(distribution, id));
  }

  // The rule of `token` for draft token i: u * q < p, without a division. The comparison is strict:
  // p = 0 never accepts, p = q > 0 always does.
  SPECD_HD bool Accepts(int32_t i, const Distribution& p, const DraftShare& q) const {
    const uint64_t coin = CoinAt(i, i + 1, Purpose::kAccept);
    const double u = CoinToDouble(coin);
    RecordShares(i, p, q);
    if (PlaceDecision* record = RecordOf(i)) record->accept_coin = coin;
    const auto p_weight = static_cast<double>(Weight(p, DraftToken(i)));
    const auto is_below = [&](double mass) {
      return u * (static_cast<double>(q.weight) * mass) < p_weight * q.mass;
    };
    if constexpr (LooksByLane<T>) {
      // Both bounds of the mass nearly always give the answer of the mass between them.
      if (!(p.mass > 0) && p.rough_mass > 0) {
        const bool accepts = is_below(p.rough_mass * (1 + kRoughly));
        const bool is_clear = accepts == is_below(p.rough_mass * (1 - kRoughly));
        return is_clear ? accepts : is_below(MassOf(team_, p));
      }
    }
    return is_below(p.mass);
  }

  SPECD_HD int32_t num_drafts() const { return task_.draft.num_nodes; }
  // The draft tokens whose path lies in the vocabulary.
  SPECD_HD int32_t NumDrawn() const {
    NodeSet drawn = 0;
    for (int32_t i = 0; i < num_drafts(); ++i) {
      const int32_t parent = ParentOf(task_.draft, i);
      const bool is_drawn =
          IsInVocabulary(DraftToken(i)) && (parent == kRoot || Holds(drawn, parent));
      drawn |= is_drawn ? NodeSet{1} << i : 0;
    }
    return NumNodes(drawn);
  }
  SPECD_HD bool DraftEndsAt(int32_t i) const {
    return i >= num_drafts() || !IsInVocabulary(DraftToken(i));
  }
  SPECD_HD TokenId DraftToken(int32_t i) const { return task_.draft.tokens[i]; }
  SPECD_HD bool IsSampled(int32_t node) const { return IsDrawn(task_.draft, node); }
  SPECD_HD bool IsInVocabulary(TokenId token) const {
    return specd::IsInVocabulary(token, batch_.target.vocab_size);
  }
  // Step 1 for a token at place i. A forced token overrides every mask.
  SPECD_HD bool MayEmit(int32_t i, TokenId token) const {
    if (!IsInVocabulary(token)) return false;
    if (task_.draft.target_argmax != nullptr) return true;  // no rows, so no mask
    const Row row = TargetRow(i);
    if (row.place.forced != kNoToken) return token == row.place.forced;
    const TokenEdit* edit = EditOf(row, token);
    TokenEdit none;
    none.id = token;
    return IsAllowed(row, edit != nullptr ? *edit : none);
  }

  SPECD_HD uint64_t Coin(const CoinKey& key) const { return coins_(key); }
  // The position of token i of the output, and of the token at a place.
  SPECD_HD uint32_t PositionOfToken(int32_t i) const {
    return task_.first_position + static_cast<uint32_t>(i);
  }
  SPECD_HD uint32_t PositionOf(int32_t place) const {
    return PositionOfToken(DepthOf(task_.draft, place));
  }
  // The coin of the token at place i if it is drawn from p itself.
  SPECD_HD uint64_t SampleCoinAt(int32_t i) const { return coins_(SampleCoin(PositionOf(i))); }
  // The coin of a decision at place i about a node of the draft (0 is the root).
  SPECD_HD uint64_t CoinAt(int32_t i, int32_t node, Purpose purpose) const {
    return coins_({.position = PositionOf(i),
                   .round_base = task_.round_base,
                   .node = static_cast<uint32_t>(node),
                   .purpose = purpose});
  }

  SPECD_HD static RowFacts FactsOf(const Distribution& p) {
    return {.point = p.point,
            .max = p.max,
            .scale = p.scale,
            .cut_value = p.row.cut.value,
            .cut_last = p.row.cut.last,
            .has_cut = p.row.has_cut,
            .below_min_tokens = p.row.place.below_min_tokens,
            .mass = p.mass};
  }
  // A distribution with weights and mass but without tiles. WeightOf and ReadResidual need no more.
  SPECD_HD static Distribution Recall(Row row, const RowFacts& facts) {
    Distribution p;
    row.has_cut = facts.has_cut;
    row.cut = {facts.cut_value, facts.cut_last};
    row.place.below_min_tokens = facts.below_min_tokens;
    p.row = row;
    p.point = facts.point;
    p.max = facts.max;
    p.scale = facts.scale;
    p.mass = facts.mass;
    return p;
  }

  SPECD_HD void NoteFallen(int32_t i, const Distribution& p, const Distribution& q) {
    const FallenPlace place = {FactsOf(p),
                               FactsOf(q),
                               p.stats.peaks,
                               task_.draft.target_rows[i],
                               task_.draft.draft_rows[i],
                               batch_.target.dtype == batch_.draft.dtype &&
                                   IsReadAsItLies(TargetRow(i)) && IsReadAsItLies(DraftRow(i))};
    team_.Publish(place, FallenPlaceAt(workspace_, i));
  }

  SPECD_HD T& team() const { return team_; }
  SPECD_HD const Task& task() const { return task_; }
  SPECD_HD const TaskWorkspace& workspace() const { return workspace_; }

 private:
  SPECD_HD RowWorkspace WithAhead(RowWorkspace workspace, int32_t task_row) const {
    if (workspace_.ahead != nullptr && IsReadAhead(task_, task_row)) {
      workspace.ahead = AheadOf(task_row);
    }
    return workspace;
  }

  // The row with the edits and the mask of place i.
  SPECD_HD Row Edited(const RowView& view, int32_t i) const {
    Row row;
    row.view = view;
    row.sequence = task_.edits;
    if (task_.places == nullptr) return row;
    row.place = task_.places[i];
    row.mask = row.place.grammar_mask;
    if (row.place.mask_row >= 0) {
      row.mask = batch_.mask.words + row.place.mask_row * batch_.mask.row_stride;
    }
    return row;
  }

  T& team_;
  const RoundBatch& batch_;
  const Task& task_;
  const TaskWorkspace& workspace_;
  const CoinSource& coins_;
  PlaceDecision* decisions_ = nullptr;
  int32_t raw_place_ = -1;  // of AskForRawSums
  int32_t complete_place_ = -1;
  uint32_t complete_row_ = 0;
};

}  // namespace specd
