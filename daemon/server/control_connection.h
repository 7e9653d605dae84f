// ControlConnection is one engine's or rank's connection to ControlServer.
//
// A reply for which the socket has no room waits in the connection until the peer reads. The server
// meanwhile reads no message of that peer and hands none to a thread, so at most one reply waits,
// replies keep the order of their messages, and no other peer is kept waiting. One thread.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "daemon/session/control_service.h"
#include "ipc/base/unique_fd.h"
#include "ipc/sockets/unix_socket.h"

namespace specd {

// Readable once the process has ended. None for a process that this one cannot see.
UniqueFd OpenProcess(int32_t pid);

struct ControlConnection {
  enum class Sent { kAll, kWaits, kBroken };

  // Sends the reply, or keeps it. REQUIRES: no reply waits.
  Sent Send(ControlService::Answer answer);
  // Sends the reply that waits, if the socket has room now. kAll: none waits.
  Sent SendWaiting();

  bool has_attached() const {
    return service->session() != nullptr || service->member() != nullptr;
  }
  // The events that the server waits for. A hang-up is always one of them.
  short events() const;

  UnixConnection socket;
  PeerCredentials peer;  // the socket's, unless a test says otherwise
  bool allowed = false;  // the daemon serves the peer's user
  // The process that connected, where the system tells. A child of it may keep the socket open.
  UniqueFd process;
  std::unique_ptr<ControlService> service;
  int64_t deadline_ns = 0;  // of the first hello
  bool has_spoken = false;  // a message of it was read
  bool busy = false;        // a thread has an opening of it
  bool dropped = false;     // its session has ended; it is removed once it is not busy
  std::optional<ControlService::Answer> waiting = std::nullopt;
};

}  // namespace specd
