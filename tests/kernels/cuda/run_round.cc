#include "tests/kernels/cuda/run_round.h"

#include <algorithm>

#include "kernels/warps/list_rows.h"

namespace specd {

std::vector<std::string> AnswersOf(const RoundCase& round, int32_t num_tasks) {
  std::vector<std::string> answers;
  for (int32_t i = 0; i < num_tasks; ++i) answers.push_back(round.answer(i));
  return answers;
}

std::vector<std::string> ScalarAnswers(RoundCase& round, const RoundBatch& batch) {
  for (int32_t i = 0; i < batch.num_tasks; ++i) {
    const Task& task = batch.tasks[i];
    const OwnedWorkspace workspace(batch.target.vocab_size, task.draft.num_nodes);
    ScalarTeam<CpuTarget::kBaseline> team;
    const KeyedCoins coins(task.seed, task.coins, task.num_coins);
    batch.outcomes[i] = RunTask(team, batch, task, *workspace, coins, OutputOf(batch, i));
  }
  return AnswersOf(round, batch.num_tasks);
}
std::vector<std::string> ScalarAnswers(RoundCase& round) {
  return ScalarAnswers(round, round.All());
}

LaunchMemory::LaunchMemory(const RoundBatch& batch, int32_t max_draft)
    : progress(batch.num_tasks),
      fallen(batch.num_tasks, {.task = -1, .place = -1}),
      rows_(batch.num_tasks * NumTaskRows(max_draft)),
      row_arrivals_(batch.num_tasks * NumTaskRows(max_draft) + 1),
      workspaces_(batch.num_tasks * FusedWorkspaceBytes(batch.target.vocab_size, max_draft),
                  char(kPoison)),
      tasks_(batch.num_tasks),
      scratch_(batch.num_tasks * ResolveBytes(max_draft, batch.slots.recent_room), char(kPoison)) {
  fused = {.batch = batch,
           .rows = rows_.data(),
           .row_arrivals = row_arrivals_.data(),
           .progress = progress.data(),
           .fallen = {.count = &num_fallen, .tasks = fallen.data()},
           .workspaces = workspaces_.data(),
           .max_draft = max_draft};
  ListRowsAhead(batch, max_draft, rows_.data(), row_arrivals_.data(), progress.data(), &fused);
  if (std::any_of(batch.tasks, batch.tasks + batch.num_tasks, NeedsResolve)) {
    fused.resolve = {batch.tasks, tasks_.data(), scratch_.data(), max_draft};
    fused.batch.tasks = tasks_.data();
  }
}

LaunchMemory::~LaunchMemory() = default;

void LaunchMemory::DeferAll() {
  for (AheadRow& row : rows_) row.flags &= ~uint32_t{kAheadJudged};
  for (TaskProgress& task : progress) task.at_once = 0;
}

bool LaunchMemory::counts_are_back() const {
  bool are_back = num_fallen == 0;
  for (int32_t i = 0; i <= fused.num_rows; ++i) are_back &= row_arrivals_[i] == 0;
  for (const TaskProgress& task : progress) {
    are_back &= task.rows_done == 0 && task.dead == 0 && task.deferred == 0;
  }
  return are_back;
}

LaunchResult LaunchMemory::ResultOf(const RoundCase& round, const std::string& error) const {
  LaunchResult result;
  result.error = error;
  if (error.empty()) result.answers = AnswersOf(round, fused.batch.num_tasks);
  result.counts_are_back = counts_are_back();
  return result;
}

LaunchResult LaunchDeferred(RoundCase& round, int32_t max_draft, const EmulationOptions& options) {
  LaunchMemory memory(round.All(), max_draft);
  memory.DeferAll();
  const FusedRound& fused = memory.fused;
  std::string error =
      RunEmulatedBlocks({.num_threads = 64, .schedule_seed = options.schedule_seed},
                        [&](EmulatedThread thread) { RunFusedRound(thread, fused); });
  if (error.empty()) {
    error =
        RunEmulatedBlocks(options, [&](EmulatedThread thread) { RunDeferredTasks(thread, fused); });
  }
  return memory.ResultOf(round, error);
}

LaunchResult LaunchRound(const RoundCase& round, const RoundBatch& batch, int32_t max_draft,
                         const EmulationOptions& options) {
  LaunchMemory memory(batch, max_draft);
  const FusedRound& fused = memory.fused;
  std::string error;
  const auto run = [&](bool is_needed, const auto& launch) {
    if (!is_needed || !error.empty()) return;
    error = RunEmulatedBlocks(options, [&](EmulatedThread thread) { launch(thread, fused); });
  };
  run(fused.resolve.given != nullptr, [](auto&... all) { RunResolve(all...); });
  run(true, [](auto&... all) { RunFusedRound(all...); });
  run(fused.num_launches >= 2, [](auto&... all) { RunResidualPass(all...); });
  run(fused.num_launches == 3, [](auto&... all) { RunDeferredTasks(all...); });
  return memory.ResultOf(round, error);
}

LaunchResult LaunchRound(RoundCase& round, int32_t max_draft, const EmulationOptions& options) {
  return LaunchRound(round, round.All(), max_draft, options);
}

}  // namespace specd
