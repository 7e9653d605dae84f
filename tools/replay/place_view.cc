#include "tools/replay/place_view.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>

#include "tools/replay/draft_tree.h"
#include "tools/replay/names.h"
#include "tools/replay/sequence_book.h"

namespace specd::replay {
namespace {

// A number of a sentence, or nothing in sentences without numbers.
struct Numbers {
  bool are_shown;
  std::string operator()(std::string_view name, std::optional<double> value) const {
    if (!are_shown || !value) return std::string(name);
    return fmt::format("{} = {:.6g}", name, *value);
  }
  std::string Id(std::string_view words, TokenId id) const {
    return are_shown ? fmt::format("{} ({})", words, id) : std::string(words);
  }
};

ShownVerdict VerdictOfOutcome(const PlaceView& view) {
  const int32_t place = view.depth;
  const TaskOutcome& outcome = view.task->outcome;
  if (IsUndecided(outcome.status)) return ShownVerdict::kNotJudged;
  if (place < outcome.num_accepted) return ShownVerdict::kAccepted;
  if (place > outcome.num_accepted || outcome.num_tokens == 0) {
    if (place != outcome.num_accepted) return ShownVerdict::kNotJudged;
  }
  if (outcome.status == OutcomeStatus::kBadTargetRow) return ShownVerdict::kBadTarget;
  if (outcome.status == OutcomeStatus::kBadDraftRow) return ShownVerdict::kBadDraft;
  if (outcome.status == OutcomeStatus::kBadToken) return ShownVerdict::kNotJudged;
  return view.has_draft ? ShownVerdict::kRejected : ShownVerdict::kEnds;
}

ShownVerdict VerdictOf(const PlaceView& view) {
  const PlaceDecision& decision = view.decision;
  if (!view.is_on_path) return ShownVerdict::kNotJudged;
  if (!decision.judged) {
    // `block` has looked at places after the end.
    const bool is_block = view.task->method == VerifyMethod::kBlock;
    if (is_block && decision.accept_coin != kNoCoin) return ShownVerdict::kRejected;
    return view.task->decisions.empty() ? VerdictOfOutcome(view) : ShownVerdict::kNotJudged;
  }
  if (decision.bad_target) return ShownVerdict::kBadTarget;
  if (decision.bad_draft) return ShownVerdict::kBadDraft;
  if (decision.stands) return ShownVerdict::kAccepted;
  return view.has_draft ? ShownVerdict::kRejected : ShownVerdict::kEnds;
}

// The draft token of a place in a tree: the child that was accepted, or the one that was judged
// last.
void TakeNode(const DraftTree& tree, PlaceView* view) {
  view->depth = tree.DepthOf(view->place);
  view->is_on_path =
      view->depth <= view->task->outcome.num_accepted && tree.PlaceAt(view->depth) == view->place;
  const std::vector<int32_t> children = tree.ChildrenOf(view->place);
  view->is_leaf = children.empty() && view->place > 0;
  int32_t node = view->is_on_path ? tree.AcceptedAt(view->place) : kRoot;
  for (const int32_t child : children) {
    if (node == kRoot && tree.TokenOf(child) == view->decision.draft) node = child;
  }
  if (node == kRoot && !children.empty()) node = children.back();
  view->has_draft = node != kRoot;
  if (node == kRoot) return;
  view->node = node;
  view->draft = tree.TokenOf(node);
  view->kind = tree.KindOf(node);
}

std::string WhyOfToken(const PlaceView& view, const Numbers& number) {
  const bool is_accepted = view.verdict == ShownVerdict::kAccepted;
  const std::optional<double> ratio = view.Ratio();
  const std::string u = number("u", view.accept_coin);
  if (!ratio) return is_accepted ? "accepted" : "rejected";
  if (is_accepted && *view.q == 0) return "accepted: q is 0 and p is not";
  if (is_accepted && *ratio >= 1) {
    return fmt::format("accepted: {} is 1 or more, and every u is below that",
                       number("p/q", ratio));
  }
  if (is_accepted) return fmt::format("accepted: {} is below {}", u, number("p/q", ratio));
  if (*view.p == 0) return "rejected: p is 0, so the target never gives this token";
  return fmt::format("rejected: {} is not below {}", u, number("p/q", ratio));
}

// t is what the children before have left of p, and d the proposal of this one.
std::string WhyOfTree(const PlaceView& view, const Numbers& number) {
  const bool is_accepted = view.verdict == ShownVerdict::kAccepted;
  const PlaceDecision& d = view.decision;
  if (d.bound < 0 || !view.accept_coin) return is_accepted ? "accepted" : "no child is accepted";
  const std::string u = number("u", view.accept_coin);
  const std::string bound = number("t/d", d.bound);
  if (view.task->method == VerifyMethod::kTraversal) {
    return is_accepted ? "accepted: a leaf below it is accepted"
                       : "no leaf below this place is accepted";
  }
  if (is_accepted && d.bound >= 1) {
    return "accepted: t/d is 1 or more, and every u is below that";
  }
  if (is_accepted) return fmt::format("accepted: {} is below {}", u, bound);
  return fmt::format("no child is accepted: for the last one {} is not below {}", u, bound);
}

// One coin for all children of the place.
std::string WhyOfChoice(const PlaceView& view, const Numbers& number) {
  const bool has_bound = view.decision.bound >= 0;
  const std::string u = number("u", view.accept_coin);
  const std::string sum = number("p of the children up to it",
                                 has_bound ? std::optional(view.decision.bound) : std::nullopt);
  return view.verdict == ShownVerdict::kAccepted
             ? fmt::format("accepted: the TREE coin {} is below {}", u, sum)
             : fmt::format(
                   "no child is accepted: for the last one the TREE coin {} is not below {}", u,
                   sum);
}

// A bound says that the rule was asked: the token of the place is no draft token.
std::string WhyOfLossy(const PlaceView& view, const Numbers& number) {
  const bool is_accepted = view.verdict == ShownVerdict::kAccepted;
  if (view.decision.bound < 0) {
    return is_accepted ? "accepted: it is the token of the place"
                       : "rejected: the place has another token";
  }
  const std::string bound = number("the bound", view.decision.bound);
  if (view.accept_coin.has_value()) {
    const std::string u = number("u", view.accept_coin);
    if (is_accepted && *view.accept_coin >= view.decision.bound) {
      return fmt::format("accepted by a lossy rule: p reaches threshold_single; {} is not below {}",
                         u, bound);
    }
    return fmt::format("{} by a lossy rule: {} is {} {}", is_accepted ? "accepted" : "rejected", u,
                       is_accepted ? "below" : "not below", bound);
  }
  const std::string p = number("p", view.p);
  if (is_accepted) return fmt::format("accepted by a lossy rule: {} reaches {}", p, bound);
  return fmt::format(
      "rejected: the place has another token, and the lossy rule does not take {} "
      "with {}",
      p, bound);
}

// The walk uses no coin after the one that ends it. A record may have the coin without its bound.
std::string WhyOfBlock(const PlaceView& view, const Numbers& number) {
  const PlaceDecision& d = view.decision;
  const bool is_accepted = view.verdict == ShownVerdict::kAccepted;
  if (!view.accept_coin) {
    return is_accepted ? "accepted: a longer part of the draft is accepted"
                       : "rejected with its block";
  }
  const bool has_bound = d.bound >= 0;
  const std::string u = number("u", view.accept_coin);
  const std::string bound = number("h", has_bound ? std::optional(d.bound) : std::nullopt);
  if (is_accepted && (!has_bound || *view.accept_coin < d.bound)) {
    return fmt::format("accepted: {} is below {}, so the draft up to here is accepted", u, bound);
  }
  if (is_accepted) return "accepted: a longer part of the draft is accepted";
  return fmt::format("rejected: {} is not below {}, and no longer part of the draft is accepted", u,
                     bound);
}

std::string WhyOfDraft(const PlaceView& view, const Numbers& number) {
  const bool is_accepted = view.verdict == ShownVerdict::kAccepted;
  switch (view.task->method) {
    case VerifyMethod::kGreedy:
      if (is_accepted) return "accepted: it is the argmax";
      return fmt::format("rejected: {} is the argmax", number.Id("another id", view.token));
    case VerifyMethod::kExactMatch:
      if (is_accepted) return "accepted: the SAMPLE coin draws it from p";
      return fmt::format("rejected: the SAMPLE coin draws {} from p",
                         number.Id("another id", view.token));
    case VerifyMethod::kBlock:
      return WhyOfBlock(view, number);
    case VerifyMethod::kTargetOnly:
      return WhyOfChoice(view, number);
    case VerifyMethod::kTypical:
    case VerifyMethod::kRelaxed:
    case VerifyMethod::kThreshold:
    case VerifyMethod::kSynthetic:
      return WhyOfLossy(view, number);
    case VerifyMethod::kTree:
    case VerifyMethod::kTraversal:
      return WhyOfTree(view, number);
    case VerifyMethod::kToken:
    case VerifyMethod::kAuto:
      break;
  }
  return WhyOfToken(view, number);
}

std::string CauseOfZeroInWords(const PlaceView& view) {
  const ZeroStep step = view.decision.zero_step;
  return step == ZeroStep::kNone ? "" : fmt::format("; the cause of p = 0: {}", NameOf(step));
}

std::string Explain(const PlaceView& view, const Numbers& number) {
  const TraceTask& task = *view.task;
  const size_t place = view.place;
  const bool is_forced = place < task.places.size() && task.places[place].forced != kNoToken;
  switch (view.verdict) {
    case ShownVerdict::kNotJudged:
      return "not judged: the draft ended before this place";
    case ShownVerdict::kBadTarget:
      return fmt::format("the target row {}, so the sequence ends here",
                         NameOf(task.outcome.fault));
    case ShownVerdict::kBadDraft:
      return fmt::format("the draft row or its side channel {}, so the sequence ends here",
                         NameOf(task.outcome.fault));
    case ShownVerdict::kAccepted:
      return WhyOfDraft(view, number);
    case ShownVerdict::kRejected:
      if (is_forced) {
        return fmt::format("rejected: the place is forced to {}",
                           number.Id("another id", task.places[place].forced));
      }
      return WhyOfDraft(view, number) + CauseOfZeroInWords(view);
    case ShownVerdict::kEnds:
      break;
  }
  if (is_forced) return "forced: the thinking budget is spent";
  if (view.draft != kNoToken) {
    return fmt::format("{} is outside the vocabulary, so the draft ends here",
                       number.Id("the draft token", view.draft));
  }
  if (task.method == VerifyMethod::kGreedy) return "no draft token here: the argmax follows";
  if (view.is_leaf) return "bonus: a leaf is accepted, and the SAMPLE coin draws one more from p";
  if (view.num_drawn > 0 && place == task.tokens.size()) {
    return "bonus: every draft token is accepted, and the SAMPLE coin draws one more from p";
  }
  return "no draft token here: the SAMPLE coin draws from p";
}

}  // namespace

std::string_view NameOf(ShownVerdict verdict) {
  switch (verdict) {
    case ShownVerdict::kAccepted:
      return "accepted";
    case ShownVerdict::kRejected:
      return "rejected";
    case ShownVerdict::kEnds:
      return "end of draft";
    case ShownVerdict::kBadTarget:
      return "bad target row";
    case ShownVerdict::kBadDraft:
      return "bad draft row";
    case ShownVerdict::kNotJudged:
      return "not judged";
  }
  return "?";
}

std::optional<double> PlaceView::Ratio() const {
  if (!p || !q) return std::nullopt;
  if (*q == 0) return *p == 0 ? 0.0 : std::numeric_limits<double>::infinity();
  return *p / *q;
}

PlaceView ViewPlace(const TraceInfo& info, const TraceTask& task, int32_t place,
                    const PlaceDecision& decision) {
  PlaceView view;
  view.task = &task;
  view.place = place;
  view.decision = decision;
  const size_t index = place;
  view.num_drawn = NumDrawn(task, static_cast<int32_t>(info.vocab_size));
  if (DraftTree::IsTree(task)) {
    TakeNode(DraftTree(task, static_cast<int32_t>(info.vocab_size)), &view);
  } else {
    view.depth = place;
    view.has_draft = index < view.num_drawn;
    if (view.has_draft) view.node = place;
    if (index < task.tokens.size()) {
      view.draft = task.tokens[index];
      if (index < task.kinds.size()) view.kind = task.kinds[index];
    }
  }
  view.verdict = VerdictOf(view);
  if (decision.judged) {
    view.token = decision.token;
  } else if (view.is_on_path && static_cast<size_t>(view.depth) < task.confirmed.size()) {
    view.token = task.confirmed[view.depth];
  }
  // In a tree a record without a bound is one of a draw alone.
  const bool has_share = !DraftTree::IsTree(task) || decision.bound >= 0;
  if (decision.p_mass > 0 && view.has_draft && has_share)
    view.p = decision.p_weight / decision.p_mass;
  if (decision.q_mass > 0 && view.has_draft) view.q = decision.q_weight / decision.q_mass;
  if (decision.accept_coin != kNoCoin) view.accept_coin = CoinToDouble(decision.accept_coin);
  if (decision.draw_coin != kNoCoin) {
    view.draw_coin = CoinToDouble(decision.draw_coin);
    if (decision.p_mass > 0) view.token_p = decision.token_weight / decision.p_mass;
  } else if (view.verdict == ShownVerdict::kAccepted) {
    view.token_p = view.p;
  }
  return view;
}

PlaceView ViewPlace(const TraceInfo& info, const TraceTask& task, int32_t place) {
  const size_t index = place;
  return ViewPlace(info, task, place,
                   index < task.decisions.size() ? task.decisions[index] : PlaceDecision());
}

std::vector<PlaceView> ViewWalk(const TraceInfo& info, const TraceTask& task,
                                std::span<const PlaceDecision> decisions) {
  std::vector<PlaceView> views;
  for (int32_t i = 0; i < NumPlaces(task); ++i) {
    const size_t place = i;
    views.push_back(
        ViewPlace(info, task, i, place < decisions.size() ? decisions[place] : PlaceDecision()));
    if (!views.back().is_on_path) views.pop_back();
  }
  return views;
}

std::vector<PlaceDecision> DecisionsOf(const TraceTask& task,
                                       std::span<const PlaceDecision> replayed) {
  if (task.decisions.empty()) return {replayed.begin(), replayed.end()};
  std::vector<PlaceDecision> decisions = task.decisions;
  for (size_t i = 0; i < decisions.size() && i < replayed.size(); ++i) {
    if (decisions[i].zero_step == ZeroStep::kNone) decisions[i].zero_step = replayed[i].zero_step;
  }
  return decisions;
}

std::string_view DrawnFrom(const PlaceView& view) {
  if (view.decision.residual_mass < 0) return "p";
  const VerifyMethod method = view.task->method;
  const bool chooses = method == VerifyMethod::kTargetOnly || method == VerifyMethod::kThreshold;
  if (chooses) return "p without the children";
  return DraftTree::IsTree(*view.task) ? "what the children left of p" : "the residual (p - q)+";
}

std::string Why(const PlaceView& view) { return Explain(view, Numbers{true}); }
std::string WhyInWords(const PlaceView& view) { return Explain(view, Numbers{false}); }

}  // namespace specd::replay
