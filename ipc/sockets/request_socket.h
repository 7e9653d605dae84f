// RequestSocket asks a ReplySocket and waits for its answer.
//
// An answer that comes too late is never taken for that of a later request: after a timeout the
// next request has a connection of its own. One thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ipc/sockets/zmq_socket.h"

namespace specd {

class RequestSocket {
 public:
  // The context must outlive the socket.
  RequestSocket(ZmqContext* context, std::string endpoint)
      : context_(context), endpoint_(std::move(endpoint)) {}

  // An error if no answer came within the timeout, or if the context was shut down (CANCELLED).
  absl::StatusOr<std::string> Ask(std::string_view request, absl::Duration timeout) {
    Send(request);
    return Receive(timeout);
  }
  // The same in two steps, between which the other side may work. Receive says what became of the
  // last Send.
  void Send(std::string_view request);
  absl::StatusOr<std::string> Receive(absl::Duration timeout);

 private:
  absl::StatusOr<bool> TrySend(std::string_view request);

  ZmqContext* context_;
  std::string endpoint_;
  std::optional<ZmqSocket> socket_;
  absl::StatusOr<bool> sent_ = false;
  std::vector<std::string> frames_;
};

}  // namespace specd
