// TaskPauses lets RunTask stop between two rows of a task, for a caller that runs a long task in
// several calls.
//
// The state of the task is in RoundBatch::progress. The facts of its places stay in the workspace,
// which belongs to this task until the task has ended. Teams without pauses (GPUs) run every task
// to its end; they may go on at the place to which an earlier launch has decided it.
#pragma once

#include <type_traits>

#include "kernels/bodies/task_output.h"
#include "kernels/bodies/team.h"
#include "kernels/core/round.h"

namespace specd {

class TaskPauses {
 public:
  explicit TaskPauses(const TaskOutput& output)
      : progress_(output.progress), rows_left_(output.rows_max) {
    if (progress_ != nullptr) now_ = *progress_;
  }

  // Where the task goes on.
  bool has_begun() const { return now_.has_begun; }
  TaskPhase phase() const { return now_.phase; }
  int32_t place() const { return now_.place; }
  const TaskOutcome& outcome() const { return now_.outcome; }
  TokenId last_token() const { return now_.last_token; }
  int32_t last_node() const { return now_.last_node; }
  const BlockProgress& block() const { return now_.block; }

  // Call it before the work on a place, or on a child or leaf there (kChildren). True: the task
  // stops here, and goes on at this place.
  bool Before(TaskPhase phase, int32_t place) {
    if (progress_ == nullptr) return false;
    if (rows_left_-- > 0) {
      now_.num_looks += phase == TaskPhase::kChildren ? 1 : 0;
      return false;
    }
    now_.phase = phase;
    now_.place = place;
    paused_ = true;
    return true;
  }
  void KeepBlock(const BlockProgress& block) { now_.block = block; }
  bool paused() const { return paused_; }

  template <Team T>
  void Keep(T& team, const TaskOutcome& outcome, TokenId last_token, int32_t last_node) {
    team.Sync();  // every group has read the progress
    if (!team.leader()) return;
    now_.outcome = outcome;
    now_.last_token = last_token;
    now_.last_node = last_node;
    now_.has_begun = true;
    now_.is_paused = true;
    *progress_ = now_;
  }

 private:
  PausedTask* const progress_;  // null: the task runs to its end
  int32_t rows_left_;
  bool paused_ = false;
  PausedTask now_;
};

// The same for teams without pauses. Only the places of a chain can be decided before. The compiler
// removes every other call.
class NoPauses {
 public:
  SPECD_HD explicit NoPauses(const TaskOutput& output) : begun_(output.begun) {}
  SPECD_HD bool has_begun() const { return begun_ != nullptr; }
  SPECD_HD constexpr TaskPhase phase() const { return TaskPhase::kPlaces; }
  SPECD_HD int32_t place() const { return has_begun() ? begun_->place : 0; }
  SPECD_HD const TaskOutcome& outcome() const { return begun_->outcome; }
  SPECD_HD constexpr TokenId last_token() const { return kNoToken; }
  SPECD_HD int32_t last_node() const { return begun_->last_node; }
  SPECD_HD constexpr BlockProgress block() const { return {}; }
  SPECD_HD constexpr bool Before(TaskPhase, int32_t) const { return false; }
  SPECD_HD void KeepBlock(const BlockProgress&) const {}
  SPECD_HD constexpr bool paused() const { return false; }
  template <Team T>
  SPECD_HD void Keep(T&, const TaskOutcome&, TokenId, int32_t) const {}

 private:
  const PausedTask* begun_;
};

template <Team T>
using PausesOf = std::conditional_t < requires {
  T::kPauses;
}
, TaskPauses, NoPauses > ;

}  // namespace specd
