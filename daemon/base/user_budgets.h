// UserBudgets gives every user of a daemon a part of its memory, between the budget of all sessions
// and that of each.
//
// The engines of one user may hold three quarters of the memory together, so one user never takes
// all of it. A daemon that serves one user divides nothing. Safe from any thread.
//
//   UserBudgets budgets(&all, {1000, 1001});
//   MemoryBudget session(session_bytes_max, "session_memory_mib", budgets.Of(1000));
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "daemon/base/memory_budget.h"

namespace specd {

class UserBudgets {
 public:
  // `all` outlives the object. `uids` may name a user twice.
  UserBudgets(MemoryBudget* all, std::span<const uint32_t> uids);

  // The budget of a user's sessions, which the object outlives.
  MemoryBudget* Of(uint32_t uid);

 private:
  MemoryBudget* const all_;
  std::map<uint32_t, MemoryBudget> by_uid_;  // empty: one user. Never changes, so needs no lock
};

}  // namespace specd
