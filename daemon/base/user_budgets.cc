#include "daemon/base/user_budgets.h"

#include <set>

namespace specd {

UserBudgets::UserBudgets(MemoryBudget* all, std::span<const uint32_t> uids) : all_(all) {
  const std::set<uint32_t> users(uids.begin(), uids.end());
  if (users.size() < 2) return;
  const uint64_t bytes_max = all->bytes_max() - all->bytes_max() / 4;
  for (const uint32_t uid : users) by_uid_.try_emplace(uid, bytes_max, all->flag(), all);
}

MemoryBudget* UserBudgets::Of(uint32_t uid) {
  const auto found = by_uid_.find(uid);
  return found == by_uid_.end() ? all_ : &found->second;
}

}  // namespace specd
