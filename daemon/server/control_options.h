// ControlOptions holds what ControlServer and its Attachments are told by the daemon.
//
// Plain data; its functions are called on the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/metrics/meters.h"
#include "daemon/session/session_list.h"
#include "ipc/control/control_messages.h"
#include "ipc/sockets/unix_socket.h"

namespace specd {

struct ControlOptions {
  std::string path;
  std::vector<uint32_t> allowed_uids;  // besides the daemon's own user
  uint32_t max_sessions = 0;
  Clock* clock = nullptr;
  // Makes a session for an engine of this user.
  std::function<absl::StatusOr<std::shared_ptr<Session>>(const HelloRequest&, uint32_t uid)>
      open_session;
  std::function<void(const std::shared_ptr<Session>&)> serve;
  HelloReply hello;
  // Those that `serve` has got, which an operator may see; null: there is no operator.
  const SessionList* sessions = nullptr;
  std::function<void()> on_drain = [] {};
  // A test's engines can be of several users; null: the peer is as the kernel says.
  std::function<PeerCredentials(const PeerCredentials&)> identify = nullptr;
  ControlMeters* meters = nullptr;  // which outlive the server; null: those of its own
};

}  // namespace specd
