// ControlServer serves many engines over one unix socket, on the control thread.
//
// It accepts connections, checks the peer's user, and feeds each connection's messages to its
// ControlService. If an engine hangs up or its process ends, the server ends its session; for a
// rank, it ends the membership. One thread calls it. Openings with lists or with the text of a
// constraint go to OpeningThreads; until the answer is sent, the server reads no other message of
// that engine. The thread waits for no peer (control_connection.h). One wait is bounded: for a
// piece of a round of the session that a message is about.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/awake_time.h"
#include "daemon/metrics/meters.h"
#include "daemon/server/attachments.h"
#include "daemon/server/control_connection.h"
#include "daemon/server/control_options.h"
#include "daemon/server/opening_threads.h"
#include "daemon/server/operator_service.h"
#include "daemon/session/control_service.h"
#include "daemon/session/pending_openings.h"
#include "ipc/sockets/instance_lock.h"
#include "ipc/sockets/unix_socket.h"

namespace specd {

class ControlServer {
 public:
  using Options = ControlOptions;

  // Takes the instance lock, which refuses a second daemon on the same socket, and binds. If
  // `listening` is valid, it is a socket that listens at the path and stays there.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Create(const Options& options,
                                                               UniqueFd listening = {});
  // Gives the instance lock back. REQUIRES: nothing else of the daemon is left, because another
  // daemon may then replace the files that this one has open.
  ~ControlServer();

  // Serves until wake_fd is readable, or an operator has let the daemon drain and no sequence runs.
  void Run(int wake_fd);

  // Ends the sessions, hangs up on the engines, and removes the socket. Openings that have begun
  // end first, their compiles early, and their engines get no answer.
  void Close();

 private:
  ControlServer(const Options& options, InstanceLock lock, UnixListener listener,
                std::unique_ptr<OpeningThreads> openings);

  // False if there was none to accept.
  bool AcceptOne();
  // Places for connections that are no rank's, of users who may attach or of those who may not.
  size_t NumPlaces(bool allowed) const;
  // Ends a connection that has not attached, if a new one of such a user finds no place.
  bool MakeRoom(const PeerCredentials& peer, int fd);
  bool IsWelcome(const ControlConnection& connection) const;
  // The next three are false if the connection is to be dropped. `events`: from poll.
  bool ServeOne(ControlConnection& connection, short events);
  bool HandleMessage(ControlConnection& connection);
  bool Send(ControlConnection& connection, ControlService::Answer answer);
  // Sends the answers of the openings that threads have handled.
  void AnswerOpenings();
  bool IsDrained() const;
  void CountSessions();
  void Drop(ControlConnection& connection);
  void DropMember(const ControlConnection& connection);

  const Options options_;
  ControlMeters own_meters_;
  ControlMeters& meters_;
  AwakeTime awake_;
  InstanceLock lock_;
  std::optional<UnixListener> listener_;
  std::vector<std::unique_ptr<ControlConnection>> connections_;
  std::unique_ptr<OpeningThreads> openings_;
  PendingOpenings pending_;
  OperatorService operator_;
  Attachments attachments_;
  std::vector<uint8_t> buffer_;
  bool accepting_ = true;  // false for one look after accept failed
};

}  // namespace specd
