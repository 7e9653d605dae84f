// ControlService: answers one engine's control messages, whoever carries them.
//
// The daemon has one per connection and feeds it what the socket brings; embedded mode calls it
// directly with the same bytes. So both modes check the same things and give the same errors. Owned
// and called by one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/session.h"
#include "ipc/control.h"
#include "ipc/unique_fd.h"

namespace specd {

// What a service needs of the process it runs in.
struct ControlHost {
  // Makes a session for a first Hello; refuses when draining or full.
  std::function<absl::StatusOr<std::shared_ptr<Session>>(const HelloRequest&)> open_session;
  // The engine has mapped its segment: from now on the verify loop may serve it.
  std::function<void(const std::shared_ptr<Session>&)> serve;
  // The engine's process as the kernel knows it; 0 where it cannot be seen.
  pid_t peer_pid = 0;
  // What to tell it about itself; session_id and daemon_epoch are filled in by the service.
  HelloReply hello;
};

class ControlService {
 public:
  explicit ControlService(ControlHost host) : host_(std::move(host)) {}

  struct Answer {
    std::vector<uint8_t> message;
    int fd = -1;         // to be sent with it; stays the session's
    bool close = false;  // the message was not understood: what follows cannot be trusted either
  };

  // Every message gets an answer, even one that cannot be read.
  Answer Handle(std::span<const uint8_t> message, std::vector<UniqueFd> fds);

  // Null before a successful Hello.
  const std::shared_ptr<Session>& session() const { return session_; }

 private:
  absl::StatusOr<Reply> DispatchOrExhausted(const Request& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> Dispatch(const Request& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const HelloRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const MappedRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const RegisterRegionRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const RegisterDeviceRegionRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const UnregisterRegionRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const BindTensorRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const OpenSequenceRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const CloseSequenceRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const AbortSequenceRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const ForkSequenceRequest& request, std::vector<UniqueFd>& fds);
  absl::StatusOr<Reply> On(const GetStatsRequest& request, std::vector<UniqueFd>& fds);

  ControlHost host_;
  std::shared_ptr<Session> session_;
  bool mapped_ = false;
};

}  // namespace specd
