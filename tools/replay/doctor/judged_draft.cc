#include "tools/replay/doctor/judged_draft.h"

#include <algorithm>

#include "tools/replay/place_view.h"
#include "tools/replay/sequence_book.h"

namespace specd::replay {
namespace {

// `token` accepts with min(1, p / q), `block` compares a coin with its bound.
void TakeShare(const TraceTask& task, const PlaceView& view, JudgedDraft* draft) {
  if (!draft->coin) return;
  if (task.method == VerifyMethod::kToken && draft->p && draft->q) {
    draft->share = *draft->q > 0 ? std::min(*draft->p / *draft->q, 1.0) : *draft->p > 0 ? 1.0 : 0.0;
    draft->passes = draft->is_accepted;
  }
  if (task.method == VerifyMethod::kBlock && view.decision.bound >= 0) {
    draft->share = std::min(view.decision.bound, 1.0);
    draft->passes = *draft->coin < view.decision.bound;
  }
}

// `block` goes from the last token to the first and stops at the first coin below its bound h. The
// draft up to token i is therefore accepted with 1 - (1 - h_i) (1 - h_{i + 1}) ..., and the
// quotient of two of these is the probability of a token that is reached (docs/ALGORITHMS.md,
// "Chains: block"). The record has the bounds that the walk met, and the coins say how far it went.
// So only drafts whose bounds follow without it are counted.
void TakeBlockProbabilities(std::span<const PlaceDecision> decisions,
                            std::span<const double> residuals, std::vector<JudgedDraft>* drafts) {
  const size_t count = drafts->size();
  std::vector<double> accepted(count + 1, 1.0);  // the draft up to token i; the first is the root
  double rejected = 1;
  for (size_t i = count; i > 0; --i) {
    double bound = decisions[i - 1].bound;
    if (i < count) {
      const double prefix = decisions[i].prefix;
      const JudgedDraft& next = (*drafts)[i];
      double residual = i < residuals.size() ? residuals[i] : -1;
      if (!next.is_drawn && next.p) residual = prefix * (1 - *next.p);
      if (residual < 0) return;
      const double rest = residual + 1 - prefix;
      if (bound < 0) bound = rest > 0 ? residual / rest : 1;
    }
    if (bound < 0) return;
    rejected *= 1 - std::min(bound, 1.0);
    accepted[i] = 1 - rejected;
  }
  for (size_t i = 0; i < count; ++i) {
    if (accepted[i] > 0) (*drafts)[i].probability = std::min(accepted[i + 1] / accepted[i], 1.0);
  }
}

}  // namespace

std::vector<JudgedDraft> JudgedChain(const TraceInfo& info, const TraceTask& task,
                                     std::span<const PlaceDecision> decisions,
                                     std::span<const double> residuals) {
  std::vector<JudgedDraft> drafts;
  const bool is_block = task.method == VerifyMethod::kBlock;
  const auto num_drawn =
      static_cast<int32_t>(NumDrawn(task, static_cast<int32_t>(info.vocab_size)));
  const int32_t num_reached = NumReached(task, uint32_t(num_drawn));
  for (const PlaceView& view : ViewWalk(info, task, decisions)) {
    if (view.place >= num_drawn) break;
    const bool is_judged =
        view.verdict == ShownVerdict::kAccepted || view.verdict == ShownVerdict::kRejected;
    if (!is_judged && !(is_block && view.p)) break;
    JudgedDraft draft;
    draft.node = draft.place = view.place;
    draft.id = view.draft;
    draft.is_drawn = view.kind != DraftKind::kOneHot;
    draft.is_accepted = view.place < task.outcome.num_accepted;
    draft.is_reached = view.place < num_reached;
    draft.p = view.p;
    draft.q = view.q;
    draft.coin = view.accept_coin;
    draft.zero_step = view.decision.zero_step;
    TakeShare(task, view, &draft);
    if (task.method == VerifyMethod::kToken && view.decision.residual_mass >= 0) {
      draft.residual_mass = view.decision.residual_mass;
    }
    const bool is_exact = task.method == VerifyMethod::kExactMatch;
    draft.probability = is_exact ? draft.p : is_block ? std::nullopt : draft.share;
    drafts.push_back(draft);
  }
  if (is_block && static_cast<int32_t>(drafts.size()) == num_drawn) {
    TakeBlockProbabilities(decisions, residuals, &drafts);
  }
  return drafts;
}

bool IsWholeQ(const TraceRound& round, const TraceTask& task) {
  const Filters none;
  const Filters& filters = task.draft_filters;
  const bool has_filters =
      filters.min_p > none.min_p || filters.top_k > 0 || filters.top_p < none.top_p;
  return !has_filters && round.draft.num_columns == 0;
}

}  // namespace specd::replay
