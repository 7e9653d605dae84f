// AcceptGate accepts connections of a listening socket, and turns away peers that may not connect.
//
// For SocketListener. It keeps a descriptor in reserve: if the process has no other, it takes a
// connection with that one and closes it, so that the listener is not ready for ever. Movable; not
// synchronized.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "ipc/base/unique_fd.h"

namespace specd {

struct AcceptRules {
  // Besides this process's own user. Only unix sockets tell the user.
  std::vector<uint32_t> uids = {};
  size_t connections_max = 256;
  // Called on the thread that accepts, with the reason.
  std::function<void(std::string_view why)> on_turned_away = [](std::string_view) {};
};

class AcceptGate {
 public:
  explicit AcceptGate(AcceptRules rules);

  // As accept4. A connection, which does not block; invalid if there is none, or if it was turned
  // away. `num_connected` are there.
  UniqueFd Accept(int listener, size_t num_connected, sockaddr_storage* address, socklen_t* size);

 private:
  bool Admits(int fd, size_t num_connected) const;
  bool Knows(uint32_t uid) const;

  AcceptRules rules_;
  UniqueFd spare_;
};

}  // namespace specd
