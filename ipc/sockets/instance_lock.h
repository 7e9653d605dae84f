// InstanceLock: makes sure that only one process serves a path.
//
// Whoever binds a socket file (the control socket, a ZeroMQ ipc endpoint) takes the lock of its
// path first and gives it back last; it then owns the file and may replace a leftover of a process
// that was killed. The kernel frees the lock when the process ends, however it ends. Movable; not
// synchronized.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"

namespace specd {

class InstanceLock {
 public:
  // Locks PATH.lock, and removes a socket file that a dead process left at PATH.
  // FAILED_PRECONDITION if another process holds the lock, or if what lies at PATH is no socket:
  // that is nobody's to delete. `field` names the flag in the error.
  static absl::StatusOr<InstanceLock> Take(const std::string& path, const std::string& field);

  InstanceLock(InstanceLock&&) noexcept = default;
  InstanceLock& operator=(InstanceLock&& other) noexcept;
  // Removes the socket and the lock file, then unlocks: who comes now makes new ones.
  ~InstanceLock();

 private:
  InstanceLock(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  void Release();

  UniqueFd fd_;  // invalid in one that was moved from
  std::string path_;
};

}  // namespace specd
