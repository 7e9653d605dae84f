#include "daemon/session/session_list.h"

#include <algorithm>
#include <utility>

namespace specd {

void SessionList::Add(std::shared_ptr<Session> session) {
  MutexLock lock(&mutex_);
  sessions_.push_back(std::move(session));
  version_.fetch_add(1, std::memory_order_release);
}

void SessionList::Remove(const Session* session) {
  MutexLock lock(&mutex_);
  std::erase_if(sessions_, [session](const auto& other) { return other.get() == session; });
  version_.fetch_add(1, std::memory_order_release);
}

bool SessionList::Refresh(uint64_t* version, Snapshot* snapshot) const {
  if (version_.load(std::memory_order_acquire) == *version) return false;
  MutexLock lock(&mutex_);
  *version = version_.load(std::memory_order_relaxed);
  *snapshot = sessions_;
  return true;
}

}  // namespace specd
