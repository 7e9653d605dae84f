// ZmqSocket sends and receives ZeroMQ messages for specd; cppzmq's exceptions become Status here
// only.
//
// It is for the threads of one process, and for a process that connects to another one's endpoint.
// Strangers connect to a Broadcaster, a PullSocket or a ReplySocket. Threads may share a
// ZmqContext. A ZmqSocket belongs to one thread at a time. All limits are set before the socket is
// bound or connected, because libzmq ignores them for existing pipes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace zmq {
class context_t;
class socket_t;
}  // namespace zmq

namespace specd {

class ZmqContext {
 public:
  static absl::StatusOr<ZmqContext> Make();
  ZmqContext(ZmqContext&&) noexcept;
  ZmqContext& operator=(ZmqContext&&) noexcept;
  ~ZmqContext();  // waits until its sockets are closed

  // Makes every blocking call on a socket of this context return CANCELLED, now and later.
  // Thread-safe.
  void Shutdown();

 private:
  friend class ZmqSocket;
  explicit ZmqContext(std::unique_ptr<zmq::context_t> context);
  std::unique_ptr<zmq::context_t> context_;
};

enum class ZmqKind { kPublish, kSubscribe, kPush, kPull, kRequest, kReply };

struct ZmqOptions {
  int send_queue_messages = 100000;             // high-water mark
  int receive_queue_messages = 100000;          // high-water mark
  int64_t message_bytes_max = 4 * 1024 * 1024;  // a peer that sends more is disconnected
  int linger_ms = 200;                          // how long a closed socket may still send
};

// Returns INVALID_ARGUMENT unless the endpoint is ipc://PATH, tcp://HOST:PORT or inproc://NAME.
// Abstract ipc names (ipc://@...) are refused, because they have no file permissions. `field` is
// the name used in the error.
absl::Status ValidateEndpoint(std::string_view field, std::string_view endpoint);

class ZmqSocket {
 public:
  static absl::StatusOr<ZmqSocket> Make(ZmqContext* context, ZmqKind kind,
                                        const ZmqOptions& options);
  ZmqSocket(ZmqSocket&&) noexcept;
  ZmqSocket& operator=(ZmqSocket&&) noexcept;
  ~ZmqSocket();

  absl::Status Bind(const std::string& endpoint);  // inproc://NAME only
  absl::Status Connect(const std::string& endpoint);
  absl::Status Subscribe(std::string_view topic);  // kSubscribe only

  // Sends one message of several frames without waiting. False: a queue is full (kPush; kPublish
  // drops the message instead), or no peer is connected (kPush).
  absl::StatusOr<bool> Send(std::span<const std::string_view> frames);

  // Receives one message. False: none came within the timeout.
  absl::StatusOr<bool> Receive(std::vector<std::string>* frames, absl::Duration timeout);

  // Waits until one of the sockets may have a message, or one of the descriptors can be read.
  static void WaitAny(std::span<const ZmqSocket* const> sockets, std::span<const int> fds,
                      absl::Duration timeout);

 private:
  explicit ZmqSocket(std::unique_ptr<zmq::socket_t> socket);

  std::unique_ptr<zmq::socket_t> socket_;
};

}  // namespace specd
