// ControlServer: the control thread's work. One unix socket, many engines.
//
// Accepts connections, checks who is there, feeds each connection's messages to its ControlService,
// and ends the session of an engine that hangs up, or the membership of a rank that does. One
// thread; what waits is bounded: a reply that a peer does not read, and a round of the session that
// a message is about.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/session/control_service.h"
#include "ipc/sockets/instance_lock.h"
#include "ipc/sockets/unix_socket.h"

namespace specd {

class ControlServer {
 public:
  struct Options {
    std::string path;
    std::vector<uint32_t> allowed_uids;  // besides our own
    uint32_t max_sessions = 0;
    Clock* clock = nullptr;
    std::function<absl::StatusOr<std::shared_ptr<Session>>(const HelloRequest&)> open_session;
    std::function<void(const std::shared_ptr<Session>&)> serve;
    HelloReply hello;
  };

  // Takes the instance lock, so that a second daemon on the same socket is refused, and binds.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Create(const Options& options);
  // Gives the instance lock back: the last thing a daemon does, because from then on another one
  // may make the files that this one still has open.
  ~ControlServer();

  // Serves until wake_fd is readable.
  void Run(int wake_fd);

  // Ends the sessions, hangs up on the engines, and removes the socket.
  void Close();

 private:
  struct Connection {
    UnixConnection socket;
    std::unique_ptr<ControlService> service;
    int64_t deadline_ns = 0;  // for the first hello
    bool dropped = false;     // its session has ended; it goes at the end of this look
  };

  ControlServer(const Options& options, InstanceLock lock, UnixListener listener);

  void AcceptOne();
  bool IsAllowed(const PeerCredentials& peer) const;
  bool IsWelcome(const Connection& connection) const;
  // False when the connection is to be dropped.
  bool ServeOne(Connection& connection);
  void Drop(Connection& connection);
  void DropMember(const Connection& connection);
  // The session that the token names, or why nobody can join it.
  absl::StatusOr<std::unique_ptr<MemberSession>> Join(const JoinRequest& request,
                                                      const PeerCredentials& peer);
  absl::Status CheckAllowed(const PeerCredentials& peer) const;
  std::unique_ptr<ControlService> MakeService(const PeerCredentials& peer);

  const Options options_;
  InstanceLock lock_;
  std::optional<UnixListener> listener_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<uint8_t> buffer_;
  bool accepting_ = true;  // false for one look after accept failed
};

}  // namespace specd
