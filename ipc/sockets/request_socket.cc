#include "ipc/sockets/request_socket.h"

#include <fmt/format.h>

namespace specd {

absl::StatusOr<std::string> RequestSocket::Ask(std::string_view request, absl::Duration timeout) {
  absl::StatusOr<std::string> answer = TryAsk(request, timeout);
  if (!answer.ok()) socket_.reset();
  return answer;
}

absl::StatusOr<std::string> RequestSocket::TryAsk(std::string_view request,
                                                  absl::Duration timeout) {
  if (!socket_.has_value()) {
    absl::StatusOr<ZmqSocket> made = ZmqSocket::Make(context_, ZmqKind::kRequest, {.linger_ms = 0});
    if (!made.ok()) return made.status();
    socket_.emplace(*std::move(made));
    if (absl::Status status = socket_->Connect(endpoint_); !status.ok()) return status;
  }
  const std::string_view frames[] = {request};
  const absl::StatusOr<bool> sent = socket_->Send(frames);
  if (!sent.ok()) return sent.status();
  if (*sent) {
    const absl::StatusOr<bool> received = socket_->Receive(&frames_, timeout);
    if (!received.ok()) return received.status();
    if (*received && frames_.size() == 1) return frames_[0];
  }
  return absl::DeadlineExceededError(
      fmt::format("no answer came from {} within {}", endpoint_, absl::FormatDuration(timeout)));
}

}  // namespace specd
