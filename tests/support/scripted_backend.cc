#include "tests/support/scripted_backend.h"

#include <algorithm>

namespace specd {

namespace {

void Answer(const ScriptedOutcome& scripted, const RoundBatch& batch, int32_t i) {
  batch.outcomes[i] = scripted.outcome;
  const Task& task = batch.tasks[i];
  // The number is new only for tokens by slot.
  if (!task.drafts_by_slot) batch.outcomes[i].num_drafts = task.draft.num_nodes;
  const int64_t first = int64_t{i} * batch.tokens_stride;
  std::copy(scripted.tokens.begin(), scripted.tokens.end(), batch.tokens + first);
  for (size_t j = 0; j < scripted.scores.size(); ++j) {
    std::copy(scripted.scores[j].begin(), scripted.scores[j].end(),
              batch.scores + (first + static_cast<int64_t>(j)) * batch.scores_stride);
  }
  std::copy(scripted.samples.begin(), scripted.samples.end(),
            batch.samples + int64_t{i} * batch.samples_stride);
}

}  // namespace

ScriptedOutcome Confirm(int32_t num_accepted, std::vector<TokenId> tokens) {
  ScriptedOutcome scripted;
  scripted.outcome.num_accepted = num_accepted;
  scripted.outcome.num_tokens = static_cast<int32_t>(tokens.size());
  scripted.tokens = std::move(tokens);
  return scripted;
}

ScriptedBackend::ScriptedBackend() = default;
ScriptedBackend::~ScriptedBackend() = default;

absl::Status ScriptedBackend::Prepare(const BackendLimits& asked) {
  limits = asked;
  return absl::OkStatus();
}

absl::Status ScriptedBackend::Run(const RoundBatch& batch) {
  if (inspect) inspect(batch);
  if (!next_status.ok()) return next_status;
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    seen.push_back(batch.tasks[i]);
    AnswerNext(batch, i);
  }
  return absl::OkStatus();
}

absl::Status ScriptedBackend::ReadDraftTokensEarly(const TokenRows& rows,
                                                   std::span<const TokenRowRead> reads) {
  early_reads.emplace_back(reads.begin(), reads.end());
  return early_status.ok() ? ReadDraftTokens(rows, reads) : early_status;
}

absl::Status ScriptedBackend::WriteSlotOutputs(const RoundBatch& batch) {
  return write_next ? write_next(batch) : absl::OkStatus();
}

absl::StatusOr<const int32_t*> ScriptedBackend::KeepColumns(std::span<const int32_t> columns) {
  if (!keep_status.ok()) return keep_status;
  return columns.data();
}

absl::Status ScriptedBackend::Transform(const TransformBatch&) { return next_status; }

absl::Status ScriptedBackend::EnqueueStaged(void* stream, int32_t num_tasks) {
  if (!next_status.ok()) return next_status;
  enqueued.emplace_back(stream, num_tasks);
  return absl::OkStatus();
}

absl::Status ScriptedBackend::Stage(const RoundBatch& batch) {
  if (inspect) inspect(batch);
  if (!stage_statuses.empty()) {
    const absl::Status status = stage_statuses.front();
    stage_statuses.pop_front();
    if (!status.ok()) return status;
  }
  seen.insert(seen.end(), batch.tasks, batch.tasks + batch.num_tasks);
  staged.push_back(batch);
  return absl::OkStatus();
}

absl::StatusOr<bool> ScriptedBackend::Collect() {
  SPECD_CHECK(!staged.empty());
  if (!next_status.ok()) return next_status;
  if (num_run == 0) return false;
  --num_run;
  for (int32_t i = 0; i < staged.front().num_tasks; ++i) AnswerNext(staged.front(), i);
  staged.pop_front();
  return true;
}

void ScriptedBackend::AnswerNext(const RoundBatch& batch, int32_t i) {
  SPECD_CHECK(!script.empty());
  Answer(script.front(), batch, i);
  script.pop_front();
}

}  // namespace specd
