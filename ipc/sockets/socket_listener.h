// SocketListener listens on an endpoint ipc://PATH or tcp://HOST:PORT, for PeerSet.
//
// An AcceptGate accepts its connections. The file of an ipc endpoint is held by an InstanceLock.
// Movable; not synchronized.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"
#include "ipc/sockets/accept_gate.h"
#include "ipc/sockets/instance_lock.h"

namespace specd {

class SocketListener {
 public:
  // HOST is a name, an address, or * for all addresses; PORT may be *.
  static absl::StatusOr<SocketListener> Listen(const std::string& endpoint,
                                               const AcceptRules& rules);

  int fd() const { return fd_.get(); }
  // The endpoint with the port that the system chose.
  const std::string& endpoint() const { return endpoint_; }

  // A connection, which does not block; invalid if there is none, or if the gate turned it away.
  // `num_connected` are there. `name` becomes the peer's for the log.
  UniqueFd Accept(size_t num_connected, std::string* name);

 private:
  SocketListener(std::optional<InstanceLock> lock, UniqueFd fd, std::string endpoint,
                 const AcceptRules& rules);

  std::optional<InstanceLock> lock_;  // released last
  AcceptGate gate_;
  UniqueFd fd_;
  std::string endpoint_;
};

}  // namespace specd
