#include "tests/simulator/network.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "ipc/sockets/zmq_socket.h"

namespace zmq {

class context_t {};

class socket_t {
 public:
  using Message = std::vector<std::string>;

  explicit socket_t(specd::ZmqKind of) : kind(of) {}
  ~socket_t() {
    std::erase_if(network_.bound_, [this](const auto& entry) { return entry.second == this; });
    std::erase(network_.connected_, this);
  }
  socket_t(const socket_t&) = delete;
  socket_t& operator=(const socket_t&) = delete;

  bool Bind(const std::string& endpoint) { return network_.bound_.emplace(endpoint, this).second; }
  void Connect(const std::string& endpoint) {
    peer = endpoint;
    network_.connected_.push_back(this);
  }
  bool Send(const Message& message) {
    switch (kind) {
      case specd::ZmqKind::kPublish:
        for (socket_t* const other : network_.connected_) Publish(message, other);
        return true;
      case specd::ZmqKind::kReply:
        for (socket_t* const other : network_.connected_) {
          if (other->id_ == asker_) other->queue_.push_back(message);
        }
        return true;
      default:
        break;
    }
    const auto found = network_.bound_.find(peer);
    if (found == network_.bound_.end()) return false;
    found->second->queue_.push_back(message);
    found->second->senders_.push_back(id_);
    return true;
  }
  bool Receive(bool may_wait, Message* message) {
    if (queue_.empty() && may_wait && kind == specd::ZmqKind::kRequest) network_.serve(peer);
    if (queue_.empty()) return false;
    *message = std::move(queue_.front());
    queue_.pop_front();
    if (!senders_.empty()) {
      asker_ = senders_.front();
      senders_.pop_front();
    }
    return true;
  }

  const specd::ZmqKind kind;
  std::vector<std::string> topics;
  std::string peer;

 private:
  void Publish(const Message& message, socket_t* other) {
    const auto found = network_.bound_.find(other->peer);
    if (found == network_.bound_.end() || found->second != this) return;
    const auto wants = [&](const std::string& topic) { return message[0].starts_with(topic); };
    if (std::none_of(other->topics.begin(), other->topics.end(), wants)) return;
    if (other->queue_.size() >= network_.queue_messages_max) return;
    if (!network_.loses(other->peer)) other->queue_.push_back(message);
  }

  specd::sim::Network& network_ = specd::sim::Network::OfProcess();
  static inline uint64_t num_made_ = 0;
  const uint64_t id_ = ++num_made_;
  std::deque<Message> queue_;
  std::deque<uint64_t> senders_;  // of the messages in the queue of a kReply or kPull
  uint64_t asker_ = 0;
};

}  // namespace zmq

namespace specd {
namespace sim {

Network& Network::OfProcess() {
  static Network network;
  return network;
}

}  // namespace sim

absl::Status ValidateEndpoint(std::string_view, std::string_view) { return absl::OkStatus(); }

ZmqContext::ZmqContext(std::unique_ptr<zmq::context_t> context) : context_(std::move(context)) {}
ZmqContext::ZmqContext(ZmqContext&&) noexcept = default;
ZmqContext& ZmqContext::operator=(ZmqContext&&) noexcept = default;
ZmqContext::~ZmqContext() = default;
absl::StatusOr<ZmqContext> ZmqContext::Make() {
  return ZmqContext(std::make_unique<zmq::context_t>());
}
void ZmqContext::Shutdown() {}

ZmqSocket::ZmqSocket(std::unique_ptr<zmq::socket_t> socket) : socket_(std::move(socket)) {}
ZmqSocket::ZmqSocket(ZmqSocket&&) noexcept = default;
ZmqSocket& ZmqSocket::operator=(ZmqSocket&&) noexcept = default;
ZmqSocket::~ZmqSocket() = default;

absl::StatusOr<ZmqSocket> ZmqSocket::Make(ZmqContext*, ZmqKind kind, const ZmqOptions&) {
  return ZmqSocket(std::make_unique<zmq::socket_t>(kind));
}
absl::Status ZmqSocket::Bind(const std::string& endpoint) {
  if (socket_->Bind(endpoint)) return absl::OkStatus();
  return MakeError(SPECD_ERROR_STATE, "endpoint", endpoint + " is bound");
}
absl::Status ZmqSocket::Connect(const std::string& endpoint) {
  socket_->Connect(endpoint);
  return absl::OkStatus();
}
absl::Status ZmqSocket::Subscribe(std::string_view topic) {
  socket_->topics.emplace_back(topic);
  return absl::OkStatus();
}
absl::StatusOr<bool> ZmqSocket::Send(std::span<const std::string_view> frames) {
  return socket_->Send({frames.begin(), frames.end()});
}
absl::StatusOr<bool> ZmqSocket::Receive(std::vector<std::string>* frames, absl::Duration timeout) {
  return socket_->Receive(timeout > absl::ZeroDuration(), frames);
}
void ZmqSocket::WaitAny(std::span<const ZmqSocket* const>, std::span<const int>, absl::Duration) {}

}  // namespace specd
