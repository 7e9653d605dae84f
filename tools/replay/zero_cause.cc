#include "tools/replay/zero_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/fp_environment.h"
#include "tools/replay/edited_row.h"
#include "tools/replay/names.h"

namespace specd::replay {
namespace {

// Of an older record without rows: the steps that were on.
std::string StepsOn(const PlaceView& view) {
  const TraceTask& task = *view.task;
  const size_t index = view.place;
  const TracePlace place = index < task.places.size() ? task.places[index] : TracePlace();
  std::string on;
  const auto add = [&on](bool is_on, const std::string& text) {
    if (is_on) on += (on.empty() ? "" : ", ") + text;
  };
  add(place.grammar_state != 0, "the grammar");
  add(place.mask_row >= 0, "a mask row");
  add(place.below_min_tokens, fmt::format("min_tokens {}", task.min_tokens));
  add(task.num_edits > 0 || !place.overrides.empty(), "the edits of ids");
  const Filters& f = task.target_filters;
  add(f.min_p > -kInfinity, fmt::format("min_p {:.6g}", std::exp2(double{f.min_p})));
  add(f.top_k > 0, fmt::format("top_k {}", f.top_k));
  add(f.top_p < kTopPOff, fmt::format("top_p {:.6g}", CoinToDouble(f.top_p)));
  return on.empty() ? "none" : on;
}

// What the record says of the step's threshold.
std::optional<double> ThresholdOf(const PlaceView& view, ZeroStep step) {
  const Filters& f = view.task->target_filters;
  if (step == ZeroStep::kMinTokens) return double(view.task->min_tokens);
  if (step == ZeroStep::kTopK) return double(f.top_k);
  if (step == ZeroStep::kTopP) return CoinToDouble(f.top_p);
  return std::nullopt;
}

// The values of the filters, which are added one after the other.
class FilterValues {
 public:
  FilterValues(const PlaceView& view, PlaceRows* rows, const RoundRebuilder& round, size_t i)
      : view_(view),
        rows_(rows),
        round_(round),
        in_batch_(i),
        task_(round.batch().tasks[i]),
        row_(EditedRow(round.batch(), task_, view.place,
                       RowAt(round.batch().target, task_.draft.target_rows[view.place]))) {}

  absl::Status Complete(ZeroCause* cause) {
    const Filters& all = task_.target_filters;
    Filters some;
    some.joint = all.joint;
    absl::StatusOr<std::vector<float>> before = Distribution(some);
    if (!before.ok()) return before.status();
    if (cause->step == ZeroStep::kMinP) {
      const double largest = *std::max_element(before->begin(), before->end());
      cause->threshold = std::exp2(double{all.min_p}) * largest;
      cause->value = PofDraft(*before);
      return absl::OkStatus();
    }
    some.min_p = all.min_p;
    some.top_k = all.top_k;
    const absl::StatusOr<std::vector<float>> after = Distribution(some);
    if (!after.ok()) return after.status();
    const bool is_top_k = PofDraft(*after) == 0;
    cause->step = is_top_k ? ZeroStep::kTopK : ZeroStep::kTopP;
    cause->threshold = ThresholdOf(view_, cause->step);
    cause->value = is_top_k ? Before(*before).rank : Before(all.joint ? *before : *after).mass;
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::vector<float>> Distribution(const Filters& filters) {
    std::vector<float> p;
    absl::Status status = rows_->Distribution(round_, in_batch_, view_.place, filters, &p);
    if (!status.ok()) return status;
    return p;
  }

  double PofDraft(const std::vector<float>& p) const { return double{p[view_.draft]}; }

  // The place of the draft token in the order of CONTRACT §3.10.
  struct Order {
    double rank = 1;
    double mass = 0;  // of the ids before it, as a part of all
  };
  Order Before(const std::vector<float>& p) const {
    Row row = row_;
    if (row.place.below_min_tokens && OnlyEndsPass(row)) row.place.below_min_tokens = false;
    const FpEnvironment environment;
    const float own = ElementOf(row, view_.draft);
    Order order;
    double all = 0;
    for (TokenId id = 0; id < row.view.vocab_size; ++id) {
      const double mass = double{p[id]};
      all += mass;
      const float logit = ElementOf(row, id);
      const bool is_before = logit > own || (logit == own && id < view_.draft);
      if (!is_before) continue;
      order.rank += 1;
      order.mass += mass;
    }
    order.mass = all > 0 ? order.mass / all : 0;
    return order;
  }

  const PlaceView& view_;
  PlaceRows* const rows_;
  const RoundRebuilder& round_;
  const size_t in_batch_;
  const Task& task_;
  const Row row_;
};

std::string Number(const std::optional<double>& value) {
  return value ? fmt::format("{:.6g}", *value) : "?";
}

}  // namespace

absl::StatusOr<ZeroCause> CauseOfZero(const PlaceView& view, PlaceRows* rows,
                                      const RoundRebuilder* round, size_t i) {
  const bool is_rejected = view.verdict == ShownVerdict::kRejected && view.has_draft;
  if (!is_rejected || !view.p.has_value() || *view.p != 0) return ZeroCause{};
  ZeroCause cause = {.step = view.decision.zero_step};
  if (round == nullptr || round->batch().tasks[i].draft.target_rows == nullptr) {
    cause.threshold = ThresholdOf(view, cause.step);
    if (cause.step == ZeroStep::kNone) cause.steps_on = StepsOn(view);
    return cause;
  }
  if (cause.step == ZeroStep::kNone) {
    cause.step = round->decisions(i)[view.place].zero_step;
  }
  if (absl::Status status = rows->Read(*round, i, view.place); !status.ok()) return status;
  switch (cause.step) {
    case ZeroStep::kNone:
      cause.steps_on = StepsOn(view);
      return cause;
    case ZeroStep::kGrammar:
    case ZeroStep::kMask:
    case ZeroStep::kAllowed:
    case ZeroStep::kDisallowed:
      cause.value = static_cast<double>(rows->num_allowed());
      return cause;
    case ZeroStep::kMinTokens:
      cause.threshold = ThresholdOf(view, cause.step);
      cause.value = double(view.task->first_position) + view.depth;
      return cause;
    case ZeroStep::kMinP:
    case ZeroStep::kTopK:
    case ZeroStep::kTopP:
    case ZeroStep::kTopKOrTopP:
      break;
    case ZeroStep::kForced:
    case ZeroStep::kBanned:
    case ZeroStep::kRow:
    case ZeroStep::kUnderflow:
      return cause;
  }
  if (!rows->has_p()) return cause;
  if (absl::Status status = FilterValues(view, rows, *round, i).Complete(&cause); !status.ok()) {
    return status;
  }
  return cause;
}

std::string TextOf(const ZeroCause& cause) {
  if (cause.step == ZeroStep::kNone) {
    if (cause.steps_on.empty()) return {};
    return fmt::format("p is 0, and the trace does not name the step; these were on: {}",
                       cause.steps_on);
  }
  const std::string step = fmt::format("p is 0 by {}", NameOf(cause.step));
  const std::string threshold = Number(cause.threshold);
  const std::string value = Number(cause.value);
  switch (cause.step) {
    case ZeroStep::kGrammar:
    case ZeroStep::kMask:
    case ZeroStep::kAllowed:
    case ZeroStep::kDisallowed:
      return fmt::format("p is 0: {}; {} ids are allowed here", NameOf(cause.step), value);
    case ZeroStep::kMinTokens:
      return fmt::format("p is 0: {}: {} of {} tokens are there", NameOf(cause.step), value,
                         threshold);
    case ZeroStep::kMinP:
      return fmt::format("{}: before the filters p is {}, below min_p times the largest p = {}",
                         step, value, threshold);
    case ZeroStep::kTopK:
      return fmt::format("{}: its rank is {}, and {} ids stay", step, value, threshold);
    case ZeroStep::kTopP:
      return fmt::format("{}: the ids before it have mass {}, and top_p = {} is reached", step,
                         value, threshold);
    case ZeroStep::kTopKOrTopP:
      return step;
    case ZeroStep::kNone:
    case ZeroStep::kForced:
    case ZeroStep::kBanned:
    case ZeroStep::kRow:
    case ZeroStep::kUnderflow:
      break;
  }
  return fmt::format("p is 0: {}", NameOf(cause.step));
}

}  // namespace specd::replay
