// Runs whole rounds for tests: task after task by the scalar team, and in one launch of emulated
// blocks, which is what kernels/cuda/round_kernel.cu does on a device. The one place in the tests
// that lays out a launch's memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/bodies/fused_round.h"
#include "kernels/bodies/list_rows.h"
#include "kernels/bodies/resolve.h"
#include "tests/kernels/run_chain.h"
#include "tests/support/emulated_block.h"
#include "tests/support/round_case.h"

namespace specd {

inline std::vector<std::string> AnswersOf(const RoundCase& round, int32_t num_tasks) {
  std::vector<std::string> answers;
  for (int32_t i = 0; i < num_tasks; ++i) answers.push_back(round.answer(i));
  return answers;
}

// Of tasks that leave nothing open.
inline std::vector<std::string> ScalarAnswers(RoundCase& round, const RoundBatch& batch) {
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    const ChainTask& task = batch.tasks[i];
    const OwnedWorkspace workspace(batch.target.vocab_size, task.chain.num_drafts);
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
  std::string error;  // what stopped the emulation, if anything did
  std::vector<std::string> answers;
  bool counts_are_back = true;  // all is as it was before, so the next round may begin
};

// All launches of a round. `thread_of(thread)` is the Thread that runs; a test may give one that
// does something wrong.
template <typename ThreadOf>
LaunchResult LaunchRound(const RoundCase& round, const RoundBatch& batch, int32_t max_draft,
                         const EmulationOptions& options, const ThreadOf& thread_of) {
  const int32_t num_slots = NumSlots(max_draft);
  std::vector<AheadRow> rows(batch.num_tasks * num_slots);
  std::vector<int32_t> row_arrivals(batch.num_tasks * num_slots);
  std::vector<TaskProgress> progress(batch.num_tasks);
  std::vector<char> workspaces(
      batch.num_tasks * FusedWorkspaceBytes(batch.target.vocab_size, max_draft), char(kPoison));
  FusedRound fused{.batch = batch,
                   .rows = rows.data(),
                   .row_arrivals = row_arrivals.data(),
                   .progress = progress.data(),
                   .workspaces = workspaces.data(),
                   .max_draft = max_draft};
  ListRowsAhead(batch, max_draft, rows.data(), row_arrivals.data(), progress.data(), &fused);
  LaunchResult result;
  std::vector<ChainTask> tasks(batch.num_tasks);
  std::vector<char> scratch(batch.num_tasks * ResolveBytes(max_draft, batch.slots.recent_room),
                            char(kPoison));
  if (std::any_of(batch.tasks, batch.tasks + batch.num_tasks, NeedsResolve)) {
    fused.resolve = {batch.tasks, tasks.data(), scratch.data(), max_draft};
    fused.batch.tasks = tasks.data();
    result.error = RunEmulatedBlocks(
        options, [&](EmulatedThread thread) { RunResolve(thread_of(thread), fused); });
  }
  if (result.error.empty()) {
    result.error = RunEmulatedBlocks(
        options, [&](EmulatedThread thread) { RunFusedRound(thread_of(thread), fused); });
  }
  if (result.error.empty() && fused.may_defer) {
    result.error = RunEmulatedBlocks(
        options, [&](EmulatedThread thread) { RunDeferredTasks(thread_of(thread), fused); });
  }
  if (result.error.empty()) result.answers = AnswersOf(round, batch.num_tasks);
  for (int32_t i = 0; i < fused.num_rows; ++i) result.counts_are_back &= row_arrivals[i] == 0;
  for (const TaskProgress& task : progress) {
    result.counts_are_back &= task.rows_done == 0 && task.end_seen == 0 && task.deferred == 0;
  }
  return result;
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
