// ScriptedBackend is a Backend with answers from a test, for tests of how speculative/ and daemon/
// use an outcome. It also injects device faults.
#pragma once

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
ScriptedOutcome Confirm(int32_t num_accepted, std::vector<TokenId> tokens);

class ScriptedBackend : public Backend {
 public:
  ScriptedBackend();
  ~ScriptedBackend() override;

  std::string_view name() const override { return "scripted"; }
  std::string_view device_uuid() const override { return uuid; }
  absl::Status Prepare(const BackendLimits& asked) override;
  absl::Status Run(const RoundBatch& batch) override;
  absl::Status ReadDraftTokensEarly(const TokenRows& rows,
                                    std::span<const TokenRowRead> reads) override;
  absl::StatusOr<const int32_t*> KeepColumns(std::span<const int32_t> columns) override;
  absl::Status WriteSlotOutputs(const RoundBatch& batch) override;
  absl::Status Transform(const TransformBatch&) override;
  // Collect answers staged rounds from the script, as many as `num_run` says.
  absl::Status EnqueueStaged(void* stream, int32_t num_tasks) override;
  absl::Status Stage(const RoundBatch& batch) override;
  absl::StatusOr<bool> Collect() override;

  std::deque<ScriptedOutcome> script;
  // The tasks of every round. Their pointers are invalid when the round is over: use inspect.
  std::vector<Task> seen;
  std::function<void(const RoundBatch&)> inspect;  // sees a batch while it is valid
  absl::Status next_status;
  absl::Status keep_status;                            // of KeepColumns
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
  // Answers task i with the next outcome of the script.
  void AnswerNext(const RoundBatch& batch, int32_t i);
};

}  // namespace specd
