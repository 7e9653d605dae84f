#include "ipc/sockets/request_socket.h"

#include <fmt/format.h>

#include <utility>

namespace specd {

void RequestSocket::Send(std::string_view request) { sent_ = TrySend(request); }

absl::StatusOr<bool> RequestSocket::TrySend(std::string_view request) {
  if (!socket_.has_value()) {
    absl::StatusOr<ZmqSocket> made = ZmqSocket::Make(context_, ZmqKind::kRequest, {.linger_ms = 0});
    if (!made.ok()) return made.status();
    socket_.emplace(*std::move(made));
    if (absl::Status status = socket_->Connect(endpoint_); !status.ok()) return status;
  }
  const std::string_view frames[] = {request};
  return socket_->Send(frames);
}

absl::StatusOr<std::string> RequestSocket::Receive(absl::Duration timeout) {
  absl::StatusOr<bool> done = std::exchange(sent_, false);
  if (done.ok() && *done) done = socket_->Receive(&frames_, timeout);
  if (done.ok() && *done && frames_.size() == 1) return frames_[0];
  socket_.reset();  // an answer that comes late is none to the next request
  if (!done.ok()) return done.status();
  return absl::DeadlineExceededError(
      fmt::format("no answer came from {} within {}", endpoint_, absl::FormatDuration(timeout)));
}

}  // namespace specd
