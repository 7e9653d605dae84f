#include "ipc/sockets/zmq_socket.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <utility>
#include <zmq.hpp>

#include "absl/strings/numbers.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr size_t kIpcPathMax = 107;  // sun_path, less the final 0

absl::Status ZmqError(std::string_view what, const zmq::error_t& error) {
  if (error.num() == ETERM) return absl::CancelledError("the ZeroMQ context was shut down");
  return MakeError(SPECD_ERROR_DISCONNECTED, "", fmt::format("{}: {}", what, error.what()));
}

zmq::socket_type TypeOf(ZmqKind kind) {
  switch (kind) {
    case ZmqKind::kPublish:
      return zmq::socket_type::pub;
    case ZmqKind::kSubscribe:
      return zmq::socket_type::sub;
    case ZmqKind::kPush:
      return zmq::socket_type::push;
    case ZmqKind::kPull:
      return zmq::socket_type::pull;
    case ZmqKind::kRequest:
      return zmq::socket_type::req;
    case ZmqKind::kReply:
      return zmq::socket_type::rep;
  }
  return zmq::socket_type::pub;
}

absl::Status BadEndpoint(std::string_view field, std::string_view endpoint,
                         std::string_view reason) {
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field,
                   fmt::format("{} = \"{}\" {}; allowed are ipc://PATH, tcp://HOST:PORT and "
                               "inproc://NAME",
                               field, endpoint, reason));
}

// Removes the prefix if it is there; true if it was.
bool Consume(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

int TimeoutMs(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return -1;
  const int64_t timeout_ms = absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  return static_cast<int>(std::clamp<int64_t>(timeout_ms, 0, INT_MAX));
}

}  // namespace

absl::Status ValidateEndpoint(std::string_view field, std::string_view endpoint) {
  std::string_view rest = endpoint;
  if (endpoint.find('\0') != std::string_view::npos) {
    return BadEndpoint(field, "", "contains a zero byte");
  }
  if (Consume("inproc://", &rest)) {
    return rest.empty() ? BadEndpoint(field, endpoint, "has no name") : absl::OkStatus();
  }
  if (Consume("ipc://", &rest)) {
    if (rest.empty()) return BadEndpoint(field, endpoint, "has no path");
    if (rest.front() == '@') {
      return BadEndpoint(field, endpoint, "is an abstract name, which no file mode protects");
    }
    if (rest.size() > kIpcPathMax) {
      return BadEndpoint(field, endpoint,
                         fmt::format("has a path of {} bytes, a unix socket allows {}; use a "
                                     "shorter directory",
                                     rest.size(), kIpcPathMax));
    }
    return absl::OkStatus();
  }
  if (Consume("tcp://", &rest)) {
    const size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos || colon == 0) {
      return BadEndpoint(field, endpoint, "has no host and port");
    }
    const std::string port(rest.substr(colon + 1));
    int number = 0;
    if (port != "*" && (!absl::SimpleAtoi(port, &number) || number < 1 || number > 65535)) {
      return BadEndpoint(field, endpoint, "has a port outside 1..65535");
    }
    return absl::OkStatus();
  }
  return BadEndpoint(field, endpoint, "has no known transport");
}

// ---- context ------------------------------------------------------------------------------------

ZmqContext::ZmqContext(std::unique_ptr<zmq::context_t> context) : context_(std::move(context)) {}
ZmqContext::ZmqContext(ZmqContext&&) noexcept = default;
ZmqContext& ZmqContext::operator=(ZmqContext&&) noexcept = default;
ZmqContext::~ZmqContext() = default;

absl::StatusOr<ZmqContext> ZmqContext::Make() {
  try {
    return ZmqContext(std::make_unique<zmq::context_t>());
  } catch (const zmq::error_t& error) {
    return ZmqError("a ZeroMQ context could not be made", error);
  }
}

void ZmqContext::Shutdown() { context_->shutdown(); }

// ---- socket -------------------------------------------------------------------------------------

ZmqSocket::ZmqSocket(std::unique_ptr<zmq::socket_t> socket) : socket_(std::move(socket)) {}
ZmqSocket::ZmqSocket(ZmqSocket&&) noexcept = default;
ZmqSocket& ZmqSocket::operator=(ZmqSocket&&) noexcept = default;
ZmqSocket::~ZmqSocket() = default;

absl::StatusOr<ZmqSocket> ZmqSocket::Make(ZmqContext* context, ZmqKind kind,
                                          const ZmqOptions& options) {
  try {
    auto socket = std::make_unique<zmq::socket_t>(*context->context_, TypeOf(kind));
    socket->set(zmq::sockopt::sndhwm, options.send_queue_messages);
    socket->set(zmq::sockopt::rcvhwm, options.receive_queue_messages);
    socket->set(zmq::sockopt::maxmsgsize, options.message_bytes_max);
    socket->set(zmq::sockopt::linger, options.linger_ms);
    // libzmq queues nothing for a peer that is not there: that peer could be gone for good.
    if (kind == ZmqKind::kPush) socket->set(zmq::sockopt::immediate, true);
    return ZmqSocket(std::move(socket));
  } catch (const zmq::error_t& error) {
    return ZmqError("a ZeroMQ socket could not be made", error);
  }
}

absl::Status ZmqSocket::Bind(const std::string& endpoint) {
  if (absl::Status status = ValidateEndpoint("endpoint", endpoint); !status.ok()) return status;
  if (!endpoint.starts_with("inproc://")) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "endpoint",
                     fmt::format("endpoint = \"{}\" is open to other processes, whom libzmq does "
                                 "not bound; bind inproc://NAME",
                                 endpoint));
  }
  try {
    socket_->bind(endpoint);
    return absl::OkStatus();
  } catch (const zmq::error_t& error) {
    return ZmqError(fmt::format("binding {}", endpoint), error);
  }
}

absl::Status ZmqSocket::Connect(const std::string& endpoint) {
  if (absl::Status status = ValidateEndpoint("endpoint", endpoint); !status.ok()) return status;
  try {
    socket_->connect(endpoint);
    return absl::OkStatus();
  } catch (const zmq::error_t& error) {
    return ZmqError(fmt::format("connecting to {}", endpoint), error);
  }
}

absl::Status ZmqSocket::Subscribe(std::string_view topic) {
  try {
    socket_->set(zmq::sockopt::subscribe, topic);
    return absl::OkStatus();
  } catch (const zmq::error_t& error) {
    return ZmqError("subscribing", error);
  }
}

absl::StatusOr<bool> ZmqSocket::Send(std::span<const std::string_view> frames) {
  try {
    for (size_t i = 0; i < frames.size(); ++i) {
      const bool is_last = i + 1 == frames.size();
      const auto flags =
          zmq::send_flags::dontwait | (is_last ? zmq::send_flags::none : zmq::send_flags::sndmore);
      // libzmq takes or refuses a message at its first frame.
      if (!socket_->send(zmq::const_buffer(frames[i].data(), frames[i].size()), flags))
        return false;
    }
    return true;
  } catch (const zmq::error_t& error) {
    return ZmqError("sending", error);
  }
}

absl::StatusOr<bool> ZmqSocket::Receive(std::vector<std::string>* frames, absl::Duration timeout) {
  try {
    socket_->set(zmq::sockopt::rcvtimeo, TimeoutMs(timeout));
    zmq::message_t frame;
    size_t num_frames = 0;
    do {
      if (!socket_->recv(frame)) {
        frames->clear();
        return false;
      }
      // The strings keep their memory for the next message.
      if (num_frames == frames->size()) frames->emplace_back();
      (*frames)[num_frames++].assign(static_cast<const char*>(frame.data()), frame.size());
    } while (frame.more());
    frames->resize(num_frames);
    return true;
  } catch (const zmq::error_t& error) {
    if (error.num() == EINTR) return false;  // a signal: the caller decides whether to continue
    return ZmqError("receiving", error);
  }
}

void ZmqSocket::WaitAny(std::span<const ZmqSocket* const> sockets, std::span<const int> fds,
                        absl::Duration timeout) {
  std::vector<zmq::pollitem_t> items;
  for (const ZmqSocket* socket : sockets) {
    items.push_back({socket->socket_->handle(), 0, ZMQ_POLLIN, 0});
  }
  for (const int fd : fds) items.push_back({nullptr, fd, ZMQ_POLLIN, 0});
  try {
    zmq::poll(items, std::chrono::milliseconds(TimeoutMs(timeout)));
  } catch (const zmq::error_t&) {
    // A signal, or the context was shut down: the next Receive says so.
  }
}

}  // namespace specd
