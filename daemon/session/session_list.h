// SessionList holds the sessions that are being served, for the daemon's threads.
//
// The control thread adds sessions. The publisher removes a session that has ended and is drained.
// The verify thread and the publisher read a snapshot, and renew it only when the version has
// moved. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "daemon/base/mutex.h"
#include "daemon/session/session.h"

namespace specd {

class SessionList {
 public:
  using Snapshot = std::vector<std::shared_ptr<Session>>;

  void Add(std::shared_ptr<Session> session);
  void Remove(const Session* session);

  // Renews *snapshot if the list has changed since *version; true if it did.
  bool Refresh(uint64_t* version, Snapshot* snapshot) const;

  // The number of changes so far, read without the lock.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  // Pairs with the acquire in version(): a thread that sees the new number finds the new list.
  std::atomic<uint64_t> version_{1};
  mutable Mutex mutex_;
  Snapshot sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace specd
