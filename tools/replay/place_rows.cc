#include "tools/replay/place_rows.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/fp_environment.h"
#include "tools/replay/edited_row.h"

namespace specd::replay {
namespace {

// A greedy row has no temperature; people look at it with temperature 1.
float ScaleToShow(float scale) {
  const float log2_e = 1.4426950408889634f;
  return scale > 0 ? scale : log2_e;
}

std::vector<float> LogitsOf(const Row& row) {
  const FpEnvironment environment;
  std::vector<float> logits(static_cast<size_t>(row.view.vocab_size));
  for (size_t id = 0; id < logits.size(); ++id) {
    logits[id] = ElementOf(row, static_cast<TokenId>(id));
  }
  return logits;
}

std::vector<TokenEdit> WithoutStep1(const TokenEdit* edits, int32_t count) {
  std::vector<TokenEdit> free(edits, edits + count);
  for (TokenEdit& edit : free) edit.flags &= ~uint32_t{kEditDisallowed};
  return free;
}

}  // namespace

absl::Status PlaceRows::Transform(const RoundRebuilder& round, size_t i, int32_t place,
                                  const Source& source, std::vector<float>* out, bool* is_good) {
  const RoundBatch& batch = round.batch();
  const int32_t vocab_size = source.view.vocab_size;
  out->assign(static_cast<size_t>(vocab_size), 0.0f);
  Row row;
  row.view = source.view;
  if (source.has_edits) row = EditedRow(batch, batch.tasks[i], place, source.view);
  if (row.place.forced != kNoToken) {
    (*out)[row.place.forced] = 1;
    *is_good = true;
    return absl::OkStatus();
  }
  if (row.place.below_min_tokens && OnlyEndsPass(row)) row.place.below_min_tokens = false;
  std::vector<TokenEdit> edits;
  std::vector<TokenEdit> overrides;
  if (source.without_step1) {
    edits = WithoutStep1(row.sequence.edits, row.sequence.num_edits);
    overrides = WithoutStep1(row.place.overrides, row.place.num_overrides);
    row.sequence.edits = edits.data();
    row.place.overrides = overrides.data();
    row.sequence.allowed = nullptr;
    row.mask = nullptr;
  }
  const std::vector<float> logits = LogitsOf(row);
  // Logits of final probabilities are log2 p, which have no temperature.
  const bool is_final = source.view.rules.kind == RowKind::kFinalProbabilities;
  RowTransform transform;
  transform.scale = is_final ? 1.0f : source.scale;
  transform.filters = source.filters;
  transform.out = out->data();
  return TransformAll(logits, {&transform, 1}, is_good);
}

absl::Status PlaceRows::TransformAll(std::span<const float> logits,
                                     std::span<RowTransform> transforms, bool* is_good) {
  std::vector<OutcomeStatus> statuses(transforms.size(), OutcomeStatus::kOk);
  TransformBatch batch;
  batch.source.data = logits.data();
  batch.source.num_rows = 1;
  batch.source.vocab_size = static_cast<int32_t>(logits.size());
  batch.source.row_stride = batch.source.vocab_size;
  batch.rows = transforms.data();
  batch.num_rows = static_cast<int32_t>(transforms.size());
  batch.statuses = statuses.data();
  const absl::Status ran = backend_->Transform(batch);
  *is_good = ran.ok() && std::count(statuses.begin(), statuses.end(), OutcomeStatus::kOk) ==
                             static_cast<int64_t>(statuses.size());
  return ran;
}

absl::Status PlaceRows::Distribution(const RoundRebuilder& round, size_t i, int32_t place,
                                     const Filters& filters, std::vector<float>* out) {
  const Task& task = round.batch().tasks[i];
  const RowView target = RowAt(round.batch().target, task.draft.target_rows[place]);
  bool is_good = false;
  absl::Status status = Transform(
      round, i, place, {target, ScaleToShow(task.target_scale), filters, true}, out, &is_good);
  if (status.ok() && !is_good) return absl::InvalidArgumentError("the target row is bad");
  return status;
}

absl::Status PlaceRows::TransformDraft(const RoundRebuilder& round, size_t i, int32_t node,
                                       std::span<RowTransform> transforms) {
  const RoundBatch& batch = round.batch();
  const Task& task = batch.tasks[i];
  Row row;
  row.view = RowAt(batch.draft, task.draft.draft_rows[node]);
  const int32_t place = PlaceOf(task.draft, node);
  if (task.draft_edits) row = EditedRow(batch, task, place, row.view);
  bool is_good = false;
  absl::Status status = TransformAll(LogitsOf(row), transforms, &is_good);
  if (!status.ok() || is_good) return status;
  return absl::InvalidArgumentError("the draft row is bad");
}

absl::Status PlaceRows::Read(const RoundRebuilder& round, size_t i, int32_t place) {
  const RoundBatch& batch = round.batch();
  const Task& task = batch.tasks[i];
  has_p_ = has_q_ = is_masked_ = false;
  one_hot_ = kNoToken;
  residual_mass_ = 0;
  factor_ = 1;
  num_allowed_ = 0;
  forbidden_.clear();
  free_p_.clear();
  if (task.draft.target_rows == nullptr) return absl::OkStatus();
  const RowView target = RowAt(batch.target, task.draft.target_rows[place]);
  const float scale = ScaleToShow(task.target_scale);
  absl::Status status =
      Transform(round, i, place, {target, scale, task.target_filters, true}, &p_, &has_p_);
  if (!status.ok()) return status;
  const Row row = EditedRow(batch, task, place, target);
  is_masked_ = row.mask != nullptr || row.sequence.allowed != nullptr;
  forbidden_.assign(p_.size(), false);
  for (size_t id = 0; id < p_.size(); ++id) {
    forbidden_[id] = !PassesStep1(row, static_cast<TokenId>(id));
    num_allowed_ += forbidden_[id] ? 0 : 1;
  }
  status = ReadForbidden(round, i, place, {target, scale, {}, true, true});
  if (!status.ok()) return status;
  const TokenId* const tokens =
      task.drafts_by_slot ? batch.draft_tokens.ids + task.slot * batch.draft_tokens.row_stride
                          : task.draft.tokens;
  // The children of a place in a tree share a draft row, and one outside the vocabulary may have
  // none.
  int32_t node = place;
  if (IsTree(task)) {
    node = NextChild(task.draft, place, kRoot);
    while (node != kRoot && !IsInVocabulary(tokens[node], target.vocab_size)) {
      node = NextChild(task.draft, place, node);
    }
  }
  if (node == kRoot || node >= task.draft.num_nodes) return absl::OkStatus();
  const bool is_sampled = IsDrawn(task.draft, node);
  if (!is_sampled && IsTree(task)) return absl::OkStatus();
  if (!IsInVocabulary(tokens[node], target.vocab_size)) return absl::OkStatus();
  const PlaceDecision& decision = round.decisions(i)[place];
  if (task.method == VerifyMethod::kBlock) factor_ = decision.prefix;
  if (!is_sampled) {
    one_hot_ = tokens[node];
  } else if (round.HasDraftRow(i, node) && batch.draft.num_rows > 0) {
    const RowView draft = RowAt(batch.draft, task.draft.draft_rows[node]);
    const float draft_scale = ScaleToShow(task.draft_scale);
    status = Transform(round, i, place, {draft, draft_scale, task.draft_filters, task.draft_edits},
                       &q_, &has_q_);
    if (!status.ok()) return status;
  }
  if (!has_p_ || IsTree(task) || (is_sampled && !has_q_)) return absl::OkStatus();
  for (size_t id = 0; id < p_.size(); ++id) residual_mass_ += At(static_cast<TokenId>(id)).residual;
  return absl::OkStatus();
}

absl::Status PlaceRows::ReadForbidden(const RoundRebuilder& round, size_t i, int32_t place,
                                      const Source& target) {
  const Task& task = round.batch().tasks[i];
  const bool is_forced = task.places != nullptr && task.places[place].forced != kNoToken;
  const bool forbids = std::find(forbidden_.begin(), forbidden_.end(), true) != forbidden_.end();
  if (!forbids || is_forced) return absl::OkStatus();
  bool is_good = false;
  absl::Status status = Transform(round, i, place, target, &free_p_, &is_good);
  if (!is_good) free_p_.clear();
  return status;
}

std::vector<Candidate> PlaceRows::BestForbidden(int32_t count) const {
  std::vector<Candidate> best;
  for (size_t id = 0; id < free_p_.size(); ++id) {
    if (forbidden_[id] && free_p_[id] > 0) best.push_back(At(static_cast<TokenId>(id)));
  }
  const auto n = std::min(static_cast<size_t>(count), best.size());
  std::partial_sort(best.begin(), best.begin() + static_cast<int64_t>(n), best.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return a.free_p != b.free_p ? a.free_p > b.free_p : a.id < b.id;
                    });
  best.resize(n);
  return best;
}

Candidate PlaceRows::At(TokenId id) const {
  Candidate candidate;
  candidate.id = id;
  if (id < 0 || static_cast<size_t>(id) >= forbidden_.size()) return candidate;
  const size_t index = id;
  candidate.is_forbidden = forbidden_[index];
  if (candidate.is_forbidden && !free_p_.empty()) candidate.free_p = free_p_[index];
  if (!has_p_) return candidate;
  candidate.p = p_[index];
  if (has_q_) candidate.q = q_[index];
  if (one_hot_ == id) candidate.q = 1;
  if (has_q_ || one_hot_ != kNoToken) {
    candidate.residual = std::max(factor_ * candidate.p - candidate.q, 0.0);
  }
  return candidate;
}

std::vector<Candidate> PlaceRows::Best(int32_t count, const std::vector<TokenId>& also) const {
  std::vector<TokenId> ids;
  if (!has_p_) return {};
  std::vector<TokenId> order(p_.size());
  for (size_t id = 0; id < order.size(); ++id) order[id] = static_cast<TokenId>(id);
  const auto take_best = [&](const std::vector<float>& row) {
    const auto n = std::min(static_cast<size_t>(count), order.size());
    const auto is_better = [&](TokenId a, TokenId b) {
      const float x = row[a];
      const float y = row[b];
      return x != y ? x > y : a < b;
    };
    std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(n), order.end(),
                      is_better);
    for (size_t k = 0; k < n; ++k) {
      if (row[order[k]] > 0) ids.push_back(order[k]);
    }
  };
  take_best(p_);
  if (has_q_) take_best(q_);
  for (const TokenId id : also) {
    if (id >= 0 && static_cast<size_t>(id) < p_.size()) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::vector<Candidate> best;
  for (const TokenId id : ids) best.push_back(At(id));
  std::stable_sort(best.begin(), best.end(), [](const Candidate& a, const Candidate& b) {
    return a.p != b.p ? a.p > b.p : a.q > b.q;
  });
  return best;
}

}  // namespace specd::replay
