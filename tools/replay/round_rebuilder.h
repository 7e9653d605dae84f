// RoundRebuilder makes a RoundBatch of a recorded round and its rows, so that a backend can run the
// round again.
//
// It takes the tasks whose rows were recorded and says of each other task why not. The record is
// untrusted: CheckTask judges it first. The batch refers to memory of the rebuilder and to the
// round, and is valid until the next Rebuild. One thread.
//
//   RoundRebuilder rebuilder(vocab_size);
//   rebuilder.Rebuild(round, rows);
//   if (!rebuilder.tasks().empty()) backend->Run(rebuilder.batch());
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/trace/row_file.h"
#include "daemon/trace/trace_record.h"
#include "kernels/core/round.h"
#include "tools/replay/recorded_rows.h"

namespace specd::replay {

class RoundRebuilder {
 public:
  explicit RoundRebuilder(int32_t vocab_size) : vocab_size_(vocab_size) {}

  // `rows` may be null: then only tasks without rows (argmax ids) are taken.
  void Rebuild(const TraceRound& round, const RowFileReader* rows);

  // The tasks of the batch, as indices into TraceRound::tasks.
  std::span<const uint32_t> tasks() const { return tasks_; }
  // The number of a task in the batch; empty: it is not there.
  std::optional<size_t> InBatch(size_t trace_task) const;
  // Why the task is not in the batch; OK: it is. NOT_FOUND: its rows were not recorded.
  const absl::Status& WhyNot(size_t trace_task) const { return why_not_[trace_task]; }
  // OK, or that the row file is shorter than its records say.
  const absl::Status& damage() const { return damage_; }
  // REQUIRES: tasks() is not empty.
  const RoundBatch& batch() const { return batch_; }
  // Task i of the batch, to run it with other settings.
  Task& task(size_t i) { return batch_tasks_[i]; }
  // Whether task i of the batch has the draft row of every sampled token.
  bool HasDraftRows(size_t i) const { return arrays_[i].has_draft_rows; }
  // Whether it has the draft row of this node, which is a sampled token.
  bool HasDraftRow(size_t i, int32_t node) const {
    const std::vector<bool>& is_there = arrays_[i].draft_row_is_there;
    return static_cast<size_t>(node) < is_there.size() && is_there[node];
  }
  // Whether it has the target row and the mask of every place.
  bool HasTargetRows(size_t i) const { return arrays_[i].has_target_rows; }
  const RecordedRows& rows() const { return rows_; }

  // The answers of the last run of the batch.
  const TaskOutcome& outcome(size_t i) const { return outcomes_[i]; }
  std::span<const TokenId> tokens(size_t i) const;
  std::span<const int32_t> path(size_t i) const;
  std::span<const TokenScore> scores(size_t i) const;
  std::span<const PlaceDecision> decisions(size_t i) const;
  // Forgets the answers, before another run.
  void ClearAnswers();

 private:
  // The arrays of one task that are not those of its record.
  struct Arrays {
    std::vector<uint32_t> target_rows;
    std::vector<uint32_t> draft_rows;
    std::vector<PlaceEdits> places;
    // Every row of the draft is there, not only those that the round read.
    bool has_target_rows = true;
    bool has_draft_rows = true;
    std::vector<bool> draft_row_is_there;  // one for each node
  };

  absl::Status Add(const TraceRound& round, const TraceTask& task, Arrays* arrays);
  // The row, or a placeholder if it was not recorded and not read.
  absl::Status TakeRow(TraceTensor tensor, uint32_t index, bool is_read, uint32_t* row,
                       bool* is_whole);
  absl::Status AddRows(const TraceTask& task, Arrays* arrays);
  absl::Status AddPlaces(const TraceTask& task, Arrays* arrays);
  void MakeTask(const TraceTask& record, uint32_t slot, const Arrays& arrays);
  void MakeBatch(const TraceRound& round);

  const int32_t vocab_size_;
  RecordedRows rows_;
  std::vector<uint32_t> tasks_;
  std::vector<absl::Status> why_not_;
  absl::Status damage_;
  std::vector<Arrays> arrays_;
  std::vector<Task> batch_tasks_;
  std::vector<TokenId> drafts_by_slot_;
  std::vector<TaskOutcome> outcomes_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> path_;
  std::vector<TokenScore> scores_;
  std::vector<PlaceDecision> decisions_;
  RoundBatch batch_;
};

}  // namespace specd::replay
