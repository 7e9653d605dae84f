#include "ipc/sockets/publish_socket.h"

#include <array>
#include <utility>

namespace specd {

absl::StatusOr<PublishSocket> PublishSocket::Make(ZmqContext* context,
                                                  const BroadcastOptions& options) {
  absl::StatusOr<ZmqSocket> inside = ZmqSocket::Make(context, ZmqKind::kPublish, {});
  if (!inside.ok()) return inside.status();
  return PublishSocket(*std::move(inside), options);
}

PublishSocket::PublishSocket(ZmqSocket inside, const BroadcastOptions& options)
    : options_(options), inside_(std::move(inside)) {}

absl::Status PublishSocket::Bind(const std::string& endpoint) {
  if (endpoint.starts_with("inproc://")) {
    has_inside_ = true;
    return inside_.Bind(endpoint);
  }
  if (absl::Status status = ValidateEndpoint("endpoint", endpoint); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Broadcaster>> broadcaster =
      Broadcaster::Create(endpoint, options_);
  if (broadcaster.ok()) broadcasters_.push_back(*std::move(broadcaster));
  return broadcaster.status();
}

uint64_t PublishSocket::num_lost_messages() const {
  uint64_t sum = 0;
  for (const auto& broadcaster : broadcasters_) sum += broadcaster->counters().lost_messages;
  return sum;
}

absl::Status PublishSocket::Send(std::string_view topic, std::string_view payload,
                                 bool more_follow) {
  for (const auto& broadcaster : broadcasters_) broadcaster->Send(topic, payload, more_follow);
  if (!has_inside_) return absl::OkStatus();
  const std::array<std::string_view, 2> frames = {topic, payload};
  return inside_.Send(frames).status();
}

}  // namespace specd
