#include "daemon/recorder/draft_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "daemon/recorder/copied_rows.h"

namespace specd {
namespace {

constexpr uint64_t kMixer = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio

uint64_t NumNodes(const TaskCopy& copy) {
  return static_cast<uint64_t>(std::max(copy.task.draft.num_nodes, 0));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftCheck>> DraftCheck::Create(const BackendLimits& asked) {
  BackendLimits limits = asked;
  limits.threads = 1;
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend("cpu");
  if (!backend.ok()) return backend.status();
  if (absl::Status status = (*backend)->Prepare(limits); !status.ok()) return status;
  return std::unique_ptr<DraftCheck>(new DraftCheck(limits.vocab_size, *std::move(backend)));
}

DraftCheck::DraftCheck(int32_t vocab_size, std::unique_ptr<Backend> backend)
    : backend_(std::move(backend)), evidence_(vocab_size), p_(static_cast<size_t>(vocab_size)) {}

std::string DraftCheck::Take(const RoundCopy& round, TraceRound* record) {
  const size_t count = std::min(round.tasks.size(), record->tasks.size());
  Window window;
  for (size_t i = 0; i < count; ++i) window.num_all += NumNodes(round.tasks[i]);
  // The multiplier mixes the number, so that every N-th round comes by all tokens.
  if (window.num_all > 0) window.first = (round.number * kMixer >> 32) % window.num_all;
  uint64_t before = 0;
  for (size_t i = 0; i < count; ++i) {
    TakeTask(round, round.tasks[i], window, before, &record->tasks[i]);
    before += NumNodes(round.tasks[i]);
  }
  const bool is_time = evidence_.num_draws() >= warn_at_draws_;
  if (!is_time || !evidence_.IsWrongAtAnyLook()) return {};
  warn_at_draws_ = 2 * evidence_.num_draws();
  return fmt::format("{} ({} drafts looked at; the odds against the declared q are e^{:.0f})",
                     evidence_.Sentence(), evidence_.num_draws(), evidence_.log_evidence());
}

void DraftCheck::TakeTask(const RoundCopy& round, const TaskCopy& copy, const Window& window,
                          uint64_t before, TraceTask* record) {
  const Task& task = copy.task;
  const Draft& draft = task.draft;
  const bool has_drafts = draft.tokens != nullptr && draft.draft_rows != nullptr;
  if (!has_drafts || task.draft_edits || task.draft_scale <= 0 || task.continues) return;
  if (copy.outcome.status != OutcomeStatus::kOk) return;
  const int32_t num_read = NumReadPlaces(task, copy.outcome);
  for (int32_t node = 0; node < draft.num_nodes; ++node) {
    const bool is_chain = draft.parents == nullptr;
    if (!IsInVocabulary(draft.tokens[node], round.target.vocab_size)) {
      if (is_chain) return;
      continue;
    }
    if (KindOf(draft, node) != DraftKind::kSampled) continue;
    const bool is_asked = window.Has(before + static_cast<uint64_t>(node));
    if (is_asked && PlaceOf(draft, node) < num_read) TakeNode(round, copy, node, record);
  }
}

absl::Status DraftCheck::Transform(const TensorView& shape, const RowCopy& row,
                                   std::span<RowTransform> transforms) {
  statuses_.assign(transforms.size(), OutcomeStatus::kOk);
  TransformBatch batch;
  batch.source = shape;
  batch.source.data = row.bytes;
  batch.source.num_rows = 1;
  batch.source.row_stride = shape.vocab_size;
  batch.source.space = MemorySpace::kHost;
  batch.rows = transforms.data();
  batch.num_rows = static_cast<int32_t>(transforms.size());
  batch.statuses = statuses_.data();
  if (absl::Status status = backend_->Transform(batch); !status.ok()) return status;
  const bool is_good = std::all_of(statuses_.begin(), statuses_.end(), [](OutcomeStatus status) {
    return status == OutcomeStatus::kOk;
  });
  return is_good ? absl::OkStatus() : absl::InvalidArgumentError("the row is bad");
}

bool DraftCheck::ReadTarget(const RoundCopy& round, const Task& task, int32_t place) {
  const bool has_edits =
      task.places != nullptr || task.edits.num_edits > 0 || task.edits.allowed != nullptr;
  if (has_edits || task.draft.target_rows == nullptr || task.target_scale <= 0) return false;
  const std::span<const RowCopy> rows = RowsOf(round, TraceTensor::kTarget);
  const std::optional<uint32_t> row = FindRow(rows, task.draft.target_rows[place]);
  if (!row) return false;
  RowTransform transform;
  transform.scale = task.target_scale;
  transform.filters = task.target_filters;
  transform.out = p_.data();
  return Transform(round.target, rows[*row], {&transform, 1}).ok();
}

void DraftCheck::TakeNode(const RoundCopy& round, const TaskCopy& copy, int32_t node,
                          TraceTask* record) {
  const Task& task = copy.task;
  const Draft& draft = task.draft;
  const std::span<const RowCopy> rows = RowsOf(round, TraceTensor::kDraft);
  const std::optional<uint32_t> row = FindRow(rows, draft.draft_rows[node]);
  if (!row) return;
  DrawnId drawn;
  drawn.id = draft.tokens[node];
  drawn.scale = task.draft_scale;
  drawn.filters = task.draft_filters;
  // A row that is bad has failed its round already.
  const absl::Status status = evidence_.Add(drawn, [&](std::span<RowTransform> transforms) {
    return Transform(round.draft, rows[*row], transforms);
  });
  const int32_t place = PlaceOf(draft, node);
  const size_t index = place;
  if (!status.ok() || draft.parents != nullptr || index >= record->decisions.size()) return;
  PlaceDecision& decision = record->decisions[index];
  if (!decision.judged || !ReadTarget(round, task, place)) return;
  const std::span<const float> q = evidence_.q();
  double overlap = 0;
  for (size_t id = 0; id < q.size(); ++id) overlap += static_cast<double>(std::min(p_[id], q[id]));
  decision.overlap = overlap;
  decision.best_draft_p = static_cast<double>(p_[std::max_element(q.begin(), q.end()) - q.begin()]);
}

}  // namespace specd
