#include "tests/support/trace_maker.h"

#include <span>

#include "daemon/trace/task_fields.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr int32_t kStride = kNodesMax + 1;
constexpr int64_t kMicrosecond = 1000;

template <class T>
std::vector<T> Copy(const T* values, int64_t count) {
  return values == nullptr || count <= 0 ? std::vector<T>()
                                         : std::vector<T>(values, values + count);
}

}  // namespace

TraceMaker::TraceMaker(const std::string& path, TraceLevel level, const TraceInfo& info)
    : level_(level) {
  auto writer = replay::TraceWriter::Create(path, level == TraceLevel::kRows);
  SPECD_CHECK(writer.ok());
  writer_ = *std::move(writer);
  writer_->Write(info);
}

void TraceMaker::Opened(const TraceOpening& opening) { SPECD_CHECK(writer_->Write(opening).ok()); }
void TraceMaker::Ended(const TraceEnd& end) { SPECD_CHECK(writer_->Write(end).ok()); }
void TraceMaker::Finish() { SPECD_CHECK(writer_->Commit().ok()); }

void TraceMaker::Begin(RoundBatch* batch) {
  decisions_.assign(static_cast<size_t>(batch->num_tasks) * kStride, {});
  batch->decisions = decisions_.data();
  batch->decisions_stride = kStride;
}

void TraceMaker::Ran(const RanRound& round) {
  round_ = {};
  round_.number = ++num_rounds_;
  round_.round_id = 1000 + num_rounds_;
  round_.level = level_;
  round_.status = round.status;
  const auto start = static_cast<int64_t>(num_rounds_) * 100 * kMicrosecond;
  round_.times = {.submitted = start,
                  .taken = start + 5 * kMicrosecond,
                  .packed = start + 7 * kMicrosecond,
                  .ran = start + 25 * kMicrosecond,
                  .committed = start + 27 * kMicrosecond,
                  .answered = start + 30 * kMicrosecond};
  const RoundBatch& batch = round.batch;
  round_.target = {batch.target.dtype, batch.target.rules, batch.target.space};
  round_.draft = {batch.draft.dtype, batch.draft.rules, batch.draft.space};
  rows_.clear();
  for (int32_t i = 0; i < batch.num_tasks; ++i) AddTask(batch, i);
  WriteRows();
}

void TraceMaker::AddTask(const RoundBatch& batch, int32_t index) {
  const Task& task = batch.tasks[index];
  const Draft& draft = task.draft;
  const int32_t nodes = draft.num_nodes;
  TraceTask out;
  VisitDraftArrays([&](const char*, auto array, auto list, int num_more) {
    out.*list = Copy(draft.*array, nodes + num_more);
  });
  out.method = task.method;
  out.target_scale = task.target_scale;
  out.draft_scale = task.draft_scale;
  out.seed = task.seed;
  out.first_position = task.first_position;
  out.round_base = task.round_base;
  out.min_tokens = task.min_tokens;
  out.draft_edits = task.draft_edits;
  out.target_filters = task.target_filters;
  out.draft_filters = task.draft_filters;
  out.scores = task.scores;
  out.scores.chosen = nullptr;
  out.scores.num_chosen = 0;
  out.chosen = Copy(task.scores.chosen, task.scores.num_chosen);
  out.coins = Copy(task.coins, task.num_coins);
  out.penalties = task.edits.penalties;
  out.num_edits = static_cast<uint32_t>(task.edits.num_edits);
  if (level_ == TraceLevel::kRows) {
    out.edits = Copy(task.edits.edits, task.edits.num_edits);
    out.allowed = Copy(task.edits.allowed, (batch.target.vocab_size + 31) / 32);
  }
  out.outcome = batch.outcomes[index];
  const int64_t first = int64_t{index} * batch.tokens_stride;
  out.confirmed = Copy(batch.tokens + first, out.outcome.num_tokens);
  if (batch.path != nullptr) out.path = Copy(batch.path + first, out.outcome.num_accepted);
  const int32_t num_scores = NumScores(task.scores);
  for (int64_t j = 0; j < out.outcome.num_tokens && num_scores > 0; ++j) {
    const TokenScore* const scores = batch.scores + (first + j) * batch.scores_stride;
    out.token_scores.insert(out.token_scores.end(), scores, scores + num_scores);
  }
  out.decisions = Copy(decisions_.data() + int64_t{index} * kStride, nodes + 1);
  AddPlaces(batch, index, &out);
  round_.tasks.push_back(std::move(out));
}

void TraceMaker::AddPlaces(const RoundBatch& batch, int32_t index, TraceTask* out) {
  const Task& task = batch.tasks[index];
  const auto vocab_size = static_cast<size_t>(batch.target.vocab_size);
  for (int32_t i = 0; i <= task.draft.num_nodes && task.places != nullptr; ++i) {
    const PlaceEdits& place = task.places[i];
    TracePlace& record = out->places.emplace_back();
    record.mask_row = place.mask_row;
    record.below_min_tokens = place.below_min_tokens;
    record.forced = place.forced;
    if (level_ == TraceLevel::kRows) record.overrides = Copy(place.overrides, place.num_overrides);
    if (place.mask_row < 0) continue;
    AddRow(TraceTensor::kMask, static_cast<uint32_t>(place.mask_row),
           batch.mask.words + place.mask_row * batch.mask.row_stride, (vocab_size + 31) / 32 * 4);
  }
  const size_t row_bytes = vocab_size * static_cast<size_t>(SizeBytes(batch.target.dtype));
  for (const uint32_t row : out->target_rows) {
    AddRow(TraceTensor::kTarget, row, RowAt(batch.target, row).data, row_bytes);
  }
  for (size_t i = 0; i < out->draft_rows.size(); ++i) {
    if (out->kinds.empty() || out->kinds[i] == DraftKind::kOneHot) continue;
    AddRow(TraceTensor::kDraft, out->draft_rows[i], RowAt(batch.draft, out->draft_rows[i]).data,
           vocab_size * static_cast<size_t>(SizeBytes(batch.draft.dtype)));
  }
}

void TraceMaker::AddRow(TraceTensor tensor, uint32_t index, const void* bytes, size_t size_bytes) {
  if (level_ != TraceLevel::kRows) return;
  for (const TraceRow& row : round_.rows) {
    if (row.tensor == tensor && row.index == index) return;
  }
  rows_.push_back({static_cast<const std::byte*>(bytes), size_bytes});
  round_.rows.push_back({.tensor = tensor, .index = index});
}

void TraceMaker::WriteRows() {
  if (rows_.empty()) return;
  const auto first = writer_->WriteRows(rows_);
  SPECD_CHECK(first.ok());
  uint64_t offset = *first;
  for (size_t i = 0; i < rows_.size(); ++i) {
    round_.rows[i].offset = offset;
    offset += rows_[i].size();
  }
}

void TraceMaker::Committed(std::span<const SequenceResult> results,
                           std::span<const uint32_t> task_results) {
  for (const SequenceResult& result : results) {
    round_.answers.push_back({.sequence = result.sequence,
                              .status = result.status,
                              .refusal = result.refusal,
                              .finish_reason = result.finish_reason,
                              .num_accepted = result.num_accepted,
                              .num_kept = result.num_kept,
                              .total_kept = result.total_kept,
                              .stop_token = result.stop_token});
  }
  for (size_t i = 0; i < round_.tasks.size() && i < task_results.size(); ++i) {
    round_.tasks[i].answer = task_results[i];
  }
  SPECD_CHECK(writer_->Write(round_).ok());
}

}  // namespace specd
