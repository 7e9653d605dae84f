// ScriptedBackend is a Backend with answers from a test, for tests of how speculative/ and daemon/
// use an outcome. It also injects device faults.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace specd {

struct ScriptedOutcome {
  TaskOutcome outcome;
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenScore>> scores;  // for each token, NumScores of them
  std::vector<DraftSample> samples;
};

// Confirms `accepted` drafts and one more token, with the ids given in order.
inline ScriptedOutcome Confirm(int32_t num_accepted, std::vector<TokenId> tokens) {
  ScriptedOutcome scripted;
  scripted.outcome.num_accepted = num_accepted;
  scripted.outcome.num_tokens = static_cast<int32_t>(tokens.size());
  scripted.tokens = std::move(tokens);
  return scripted;
}

class ScriptedBackend : public Backend {
 public:
  std::string_view name() const override { return "scripted"; }
  std::string_view device_uuid() const override { return uuid; }
  absl::Status Prepare(const BackendLimits& asked) override {
    limits = asked;
    return absl::OkStatus();
  }

  absl::Status Run(const RoundBatch& batch) override {
    if (inspect) inspect(batch);
    if (!next_status.ok()) return next_status;
    for (int32_t i = 0; i < batch.num_tasks; ++i) {
      seen.push_back(batch.tasks[i]);
      SPECD_CHECK(!script.empty());
      Answer(script.front(), batch, i);
      script.pop_front();
    }
    return absl::OkStatus();
  }

  absl::Status ReadDraftTokensEarly(const TokenRows& rows,
                                    std::span<const TokenRowRead> reads) override {
    early_reads.emplace_back(reads.begin(), reads.end());
    return early_status.ok() ? ReadDraftTokens(rows, reads) : early_status;
  }

  absl::Status WriteSlotOutputs(const RoundBatch& batch) override {
    return write_next ? write_next(batch) : absl::OkStatus();
  }

  absl::Status Transform(const TransformBatch&) override { return next_status; }

  // Collect answers staged rounds from the script, as many as `num_run` says.
  absl::Status EnqueueStaged(void* stream, int32_t num_tasks) override {
    if (!next_status.ok()) return next_status;
    enqueued.emplace_back(stream, num_tasks);
    return absl::OkStatus();
  }
  absl::Status Stage(const RoundBatch& batch) override {
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
  absl::StatusOr<bool> Collect() override {
    SPECD_CHECK(!staged.empty());
    if (!next_status.ok()) return next_status;
    if (num_run == 0) return false;
    --num_run;
    for (int32_t i = 0; i < staged.front().num_tasks; ++i) {
      SPECD_CHECK(!script.empty());
      Answer(script.front(), staged.front(), i);
      script.pop_front();
    }
    staged.pop_front();
    return true;
  }

  std::deque<ScriptedOutcome> script;
  // The tasks of every round. Their pointers are invalid when the round is over: use inspect.
  std::vector<Task> seen;
  std::function<void(const RoundBatch&)> inspect;  // sees a batch while it is valid
  absl::Status next_status;
  absl::Status early_status;                           // of ReadDraftTokensEarly
  std::vector<std::vector<TokenRowRead>> early_reads;  // calls of it
  // WriteSlotOutputs calls it; Run writes no next tokens.
  std::function<absl::Status(const RoundBatch&)> write_next;
  BackendLimits limits;  // the limits of the last Prepare
  std::deque<RoundBatch> staged;
  std::deque<absl::Status> stage_statuses;  // the results of the next calls of Stage; then OK
  int32_t num_run = 0;                      // staged rounds that the engine's graph has run
  std::vector<std::pair<void*, int32_t>> enqueued;  // calls of EnqueueStaged
  std::string uuid;                                 // the device of the rounds; empty: the CPU

 private:
  static void Answer(const ScriptedOutcome& scripted, const RoundBatch& batch, int32_t i) {
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
};

}  // namespace specd
