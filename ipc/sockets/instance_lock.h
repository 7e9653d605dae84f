// InstanceLock ensures that only one process serves a path.
//
// A process that binds a socket file (the control socket, a ZeroMQ ipc endpoint) takes the lock of
// the path first and releases it last. The holder owns the file and may replace one that a killed
// process left. The kernel frees the lock when the process ends, however it ends. Movable; not
// synchronized.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"

namespace specd {

class InstanceLock {
 public:
  // Locks PATH.lock and removes a socket file that a dead process left at PATH. If another process
  // holds the lock, the answer is FAILED_PRECONDITION. The answer is the same if the file at PATH
  // is no socket, which this class never deletes. `field` names the flag in the error. Without
  // owns_file the service manager owns the socket at PATH, and this class leaves it.
  static absl::StatusOr<InstanceLock> Take(const std::string& path, const std::string& field,
                                           bool owns_file = true);

  InstanceLock(InstanceLock&&) noexcept = default;
  InstanceLock& operator=(InstanceLock&& other) noexcept;
  // Removes the socket and the lock file, then unlocks. The next process makes new files.
  ~InstanceLock();

 private:
  InstanceLock(UniqueFd fd, std::string path, bool owns_file)
      : fd_(std::move(fd)), path_(std::move(path)), owns_file_(owns_file) {}
  void Release();

  UniqueFd fd_;  // invalid after a move
  std::string path_;
  bool owns_file_;
};

}  // namespace specd
