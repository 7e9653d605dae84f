// RunFusedRound, RunResidualPass and RunDeferredTasks run a whole round on many warps for the
// launches of a GPU.
//
// RunFusedRound is the tile pass: the warp that completes a row judges it, and the warp that
// completes a task's last row decides the task. RunResidualPass (residual_pass.h) does the same for
// tokens that are replaced from residuals. In RunDeferredTasks, larger teams decide tasks that take
// further passes over rows. docs/ALGORITHMS.md, "A round on a GPU".
#pragma once

#include <type_traits>

#include "kernels/warps/decide.h"
#include "kernels/warps/judge_row.h"
#include "kernels/warps/residual_pass.h"
#include "kernels/warps/tile_pass.h"

namespace specd {

// Copies a value near to the thread, which reads it again and again. All words are requested before
// the first one is stored. REQUIRES: `where` is aligned to 8.
template <typename Value>
SPECD_INLINE Value LoadWhole(const Value* where) {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) % 8 == 0);
  static_assert(alignof(Value) % 8 == 0);
  uint64_t words[sizeof(Value) / 8];
  const char* const begin = static_cast<const char*>(__builtin_assume_aligned(where, 8));
  SPECD_UNROLL
  for (size_t i = 0; i < sizeof(Value) / 8; ++i) __builtin_memcpy(&words[i], begin + 8 * i, 8);
  Value value;
  __builtin_memcpy(&value, words, sizeof(Value));
  return value;
}

// Judges the completed row of this number. Decides its task if the row was the last one.
template <typename Thread>
SPECD_BODY void JudgeAndDecide(const Thread& thread, const FusedRound& round, int32_t index) {
  const AheadRow row = round.rows[index];
  const AheadRow* const partner = row.partner < 0 ? nullptr : &round.rows[row.partner];
  using Team = WarpTeam<LoneWarp<Thread>>;
  Team team{LoneWarp<Thread>(thread)};
  const NodeSet dead = LookAtDead(thread, round, row);  // requested together with the task
  const Task task = LoadWhole(&round.batch.tasks[row.task]);
  TaskProgress* const progress = &round.progress[row.task];
  const TaskWorkspace workspace = FusedWorkspaceAt(round, row.task);
  const KeyedCoins coins(task.seed, task.coins, task.num_coins);
  ChainRows<Team, KeyedCoins> rows(team, round.batch, task, workspace, coins);
  if (IsDead(thread, dead, row)) {
    // The verdict there is an earlier round's, and lanes look at all places.
    if (IsTargetRow(row.task_row) || partner != nullptr) rows.NoteVerdict(row.place, {});
  } else {
    JudgeRow(rows, row, partner, round.batch.target.vocab_size,
             [&] { thread.NoteBits(NodesBehind(task.draft, row.place), &progress->dead); });
  }
  if (!thread.IsLastToArrive(&progress->rows_done, progress->num_rows)) return;
  thread.Note(NodeSet{0}, &progress->dead);
  if ((row.flags & kAheadJudged) == 0) return;
  const int32_t fallen = Decide(rows, round, row.task);
  if (fallen >= 0) LeaveFallen(thread, round.fallen, {.task = row.task, .place = fallen});
}

template <typename Thread>
SPECD_INLINE void RunFusedRound(const Thread& thread, const FusedRound& round) {
  RunTilePass(thread, round, [&](int32_t row) { JudgeAndDecide(thread, round, row); });
}

// Runs after both earlier launches have ended everywhere, if FusedRound::num_launches is 3.
template <typename Thread>
SPECD_HD void RunDeferredTasks(const Thread& thread, const FusedRound& round) {
  WarpTeam<Thread> team(thread);
  for (int64_t i = thread.block(); i < round.batch.num_tasks; i += thread.num_blocks()) {
    const auto task_index = static_cast<int32_t>(i);
    TaskProgress* const progress = &round.progress[task_index];
    if (progress->at_once != 0 && progress->deferred == 0) continue;
    const Task& task = round.batch.tasks[task_index];
    const KeyedCoins coins(task.seed, task.coins, task.num_coins);
    const PausedTask begun = BegunTask(*progress);
    TaskOutput output = OutputOf(round.batch, task_index);
    if (progress->deferred != 0) output.begun = &begun;
    const TaskOutcome outcome =
        RunTask(team, round.batch, task, FusedWorkspaceAt(round, task_index), coins, output);
    team.Sync();  // every thread has seen that the task was deferred
    if (!team.leader()) continue;
    round.batch.outcomes[task_index] = outcome;
    progress->deferred = 0;
  }
}

}  // namespace specd
