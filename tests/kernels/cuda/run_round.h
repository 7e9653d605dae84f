// ScalarAnswers and LaunchRound run whole rounds for tests: task after task by the scalar team, or
// in launches of emulated blocks.
//
// The emulated launches do the work of kernels/cuda/round_kernel.cu on a device. No other test file
// lays out a launch's memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/bodies/resolve.h"
#include "kernels/warps/fused_round.h"
#include "kernels/warps/list_rows.h"
#include "tests/kernels/bodies/run_chain.h"
#include "tests/support/round_case.h"
#include "tools/emulation/emulated_block.h"

namespace specd {

inline std::vector<std::string> AnswersOf(const RoundCase& round, int32_t num_tasks) {
  std::vector<std::string> answers;
  for (int32_t i = 0; i < num_tasks; ++i) answers.push_back(round.answer(i));
  return answers;
}

// REQUIRES: all tasks are complete.
inline std::vector<std::string> ScalarAnswers(RoundCase& round, const RoundBatch& batch) {
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    const Task& task = batch.tasks[i];
    const OwnedWorkspace workspace(batch.target.vocab_size, task.draft.num_nodes);
    ScalarTeam<CpuTarget::kBaseline> team;
    batch.outcomes[i] =
        RunTask(team, batch, task, *workspace, KeyedCoins(task.seed), OutputOf(batch, i));
  }
  return AnswersOf(round, batch.num_tasks);
}
inline std::vector<std::string> ScalarAnswers(RoundCase& round) {
  return ScalarAnswers(round, round.All());
}

struct LaunchResult {
  std::string error;  // the error that stopped the emulation, if there is one
  std::vector<std::string> answers;
  bool counts_are_back = true;  // the counts are as before, so the next round may begin
};

// The memory of a round's launches.
class LaunchMemory {
 public:
  LaunchMemory(const RoundBatch& batch, int32_t max_draft)
      : progress(batch.num_tasks),
        rows_(batch.num_tasks * NumTaskRows(max_draft)),
        row_arrivals_(batch.num_tasks * NumTaskRows(max_draft)),
        workspaces_(batch.num_tasks * FusedWorkspaceBytes(batch.target.vocab_size, max_draft),
                    char(kPoison)),
        tasks_(batch.num_tasks),
        scratch_(batch.num_tasks * ResolveBytes(max_draft, batch.slots.recent_room),
                 char(kPoison)) {
    fused = {.batch = batch,
             .rows = rows_.data(),
             .row_arrivals = row_arrivals_.data(),
             .progress = progress.data(),
             .workspaces = workspaces_.data(),
             .max_draft = max_draft};
    ListRowsAhead(batch, max_draft, rows_.data(), row_arrivals_.data(), progress.data(), &fused);
    if (std::any_of(batch.tasks, batch.tasks + batch.num_tasks, NeedsResolve)) {
      fused.resolve = {batch.tasks, tasks_.data(), scratch_.data(), max_draft};
      fused.batch.tasks = tasks_.data();
    }
  }
  LaunchMemory(const LaunchMemory&) = delete;
  LaunchMemory& operator=(const LaunchMemory&) = delete;

  // Leaves every decision to the last launch.
  void DeferAll() {
    for (AheadRow& row : rows_) row.flags &= ~uint32_t{kAheadJudged};
    for (TaskProgress& task : progress) task.at_once = 0;
  }

  // The result of launches that ended with this error; empty: no error.
  LaunchResult ResultOf(const RoundCase& round, const std::string& error) const {
    LaunchResult result;
    result.error = error;
    if (error.empty()) result.answers = AnswersOf(round, fused.batch.num_tasks);
    for (int32_t i = 0; i < fused.num_rows; ++i) result.counts_are_back &= row_arrivals_[i] == 0;
    for (const TaskProgress& task : progress) {
      result.counts_are_back &=
          task.rows_done == 0 && task.dead == 0 && task.fallen == 0 && task.deferred == 0;
    }
    return result;
  }

  FusedRound fused;
  std::vector<TaskProgress> progress;

 private:
  std::vector<AheadRow> rows_;
  std::vector<int32_t> row_arrivals_;
  std::vector<char> workspaces_;
  std::vector<Task> tasks_;
  std::vector<char> scratch_;
};

// Runs all launches of a round. `thread_of(thread)` is the Thread to run; a test may give a faulty
// one.
template <typename ThreadOf>
LaunchResult LaunchRound(const RoundCase& round, const RoundBatch& batch, int32_t max_draft,
                         const EmulationOptions& options, const ThreadOf& thread_of) {
  LaunchMemory memory(batch, max_draft);
  const FusedRound& fused = memory.fused;
  std::string error;
  if (fused.resolve.given != nullptr) {
    error = RunEmulatedBlocks(options,
                              [&](EmulatedThread thread) { RunResolve(thread_of(thread), fused); });
  }
  if (error.empty()) {
    error = RunEmulatedBlocks(
        options, [&](EmulatedThread thread) { RunFusedRound(thread_of(thread), fused); });
  }
  if (error.empty() && fused.num_launches >= 2) {
    error = RunEmulatedBlocks(
        options, [&](EmulatedThread thread) { RunResidualPass(thread_of(thread), fused); });
  }
  if (error.empty() && fused.num_launches == 3) {
    error = RunEmulatedBlocks(
        options, [&](EmulatedThread thread) { RunDeferredTasks(thread_of(thread), fused); });
  }
  return memory.ResultOf(round, error);
}

// Runs the last launch under `options`, after a first launch that reads rows and decides nothing.
inline LaunchResult LaunchDeferred(RoundCase& round, int32_t max_draft,
                                   const EmulationOptions& options) {
  LaunchMemory memory(round.All(), max_draft);
  memory.DeferAll();
  std::string error =
      RunEmulatedBlocks({.num_threads = 64, .schedule_seed = options.schedule_seed},
                        [&](EmulatedThread thread) { RunFusedRound(thread, memory.fused); });
  if (error.empty()) {
    error = RunEmulatedBlocks(
        options, [&](EmulatedThread thread) { RunDeferredTasks(thread, memory.fused); });
  }
  return memory.ResultOf(round, error);
}

inline LaunchResult LaunchRound(const RoundCase& round, const RoundBatch& batch, int32_t max_draft,
                                const EmulationOptions& options) {
  return LaunchRound(round, batch, max_draft, options,
                     [](const EmulatedThread& thread) { return thread; });
}

template <typename ThreadOf>
LaunchResult LaunchRound(RoundCase& round, int32_t max_draft, const EmulationOptions& options,
                         const ThreadOf& thread_of) {
  return LaunchRound(round, round.All(), max_draft, options, thread_of);
}
inline LaunchResult LaunchRound(RoundCase& round, int32_t max_draft,
                                const EmulationOptions& options) {
  return LaunchRound(round, round.All(), max_draft, options);
}

}  // namespace specd
