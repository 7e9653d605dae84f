// UnixConnection and UnixListener carry whole messages with descriptors over unix sockets of type
// SOCK_SEQPACKET.
//
// They carry the control messages of a session, and the kernel vouches for the peer's user. A
// message arrives whole or not at all. If the other process ends in any way, the socket hangs up.
// No call here raises SIGPIPE. A connection may be used by one thread at a time; different
// connections are independent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ipc/base/unique_fd.h"

namespace specd {

inline constexpr size_t kSocketPathMax = 107;  // sun_path, less the final 0
inline constexpr size_t kMessageFdsMax = 250;  // the kernel lets 253 through (SCM_MAX_FD)

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

enum class ReceiveResult { kMessage, kTimeout, kHangup };

struct Received {
  ReceiveResult result = ReceiveResult::kTimeout;
  size_t size_bytes = 0;
};

class UnixConnection {
 public:
  // NOT_FOUND: no such path. UNAVAILABLE: no process listens there. PERMISSION_DENIED: this user
  // may not connect.
  static absl::StatusOr<UnixConnection> Connect(const std::string& path, absl::Duration timeout);

  // Sends one message. The descriptors stay the caller's. If the peer does not read for `timeout`,
  // nothing is sent, and the answer is SPECD_ERROR_TIMEOUT.
  absl::Status Send(std::span<const uint8_t> bytes, std::span<const int> fds,
                    absl::Duration timeout);

  // Receives one message into `buffer` and replaces *fds by the descriptors that came with the
  // message. A message longer than the buffer, or with more than kMessageFdsMax descriptors, is an
  // error; all its descriptors are then closed. A message of 0 bytes is a hang-up.
  absl::StatusOr<Received> Receive(std::span<uint8_t> buffer, std::vector<UniqueFd>* fds,
                                   absl::Duration timeout);

  // Tells the other side that nothing more comes, as closing does. This side can still receive.
  void FinishSending();

  // Tells whether the other side has closed or died. Messages that it sent before may still wait to
  // be received.
  bool PeerGone() const;

  const PeerCredentials& peer() const { return peer_; }
  int fd() const { return fd_.get(); }

 private:
  friend class UnixListener;
  UnixConnection(UniqueFd fd, const PeerCredentials& peer) : fd_(std::move(fd)), peer_(peer) {}
  UniqueFd fd_;
  PeerCredentials peer_;
};

class UnixListener {
 public:
  // REQUIRES: the caller holds the instance lock and has unlinked a stale socket. No process can
  // connect before the file has its mode.
  static absl::StatusOr<UnixListener> Bind(const std::string& path, mode_t mode);

  // A socket that listens already, without blocking.
  static UnixListener Adopt(UniqueFd fd) { return UnixListener(std::move(fd)); }

  // Returns nullopt if no connection came within the timeout.
  absl::StatusOr<std::optional<UnixConnection>> Accept(absl::Duration timeout);

  int fd() const { return fd_.get(); }

 private:
  explicit UnixListener(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace specd
