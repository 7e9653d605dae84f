// RawPeer sends the protocol's own bytes to the daemon's socket, in any order. Tests use it for
// things that the library would not do. One thread.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/control/control.h"
#include "ipc/sockets/unix_socket.h"

namespace specd::test {

class RawPeer {
 public:
  explicit RawPeer(const std::string& uri)
      : connection_(*UnixConnection::Connect(uri.substr(5), absl::Seconds(60))) {}

  void Send(const Request& request, uint32_t request_id, std::span<const int> fds = {}) {
    const auto message = EncodeRequest(request, request_id);
    REQUIRE(message.ok());
    REQUIRE(connection_.Send(*message, fds, absl::Seconds(60)).ok());
  }
  // False if the socket has no room for the message.
  bool TrySend(const Request& request, uint32_t request_id, std::span<const int> fds = {}) {
    const auto message = EncodeRequest(request, request_id);
    REQUIRE(message.ok());
    return connection_.Send(*message, fds, absl::ZeroDuration()).ok();
  }
  // The next reply, and the id of the request that it answers.
  std::pair<uint32_t, Reply> Receive() {
    std::vector<uint8_t> buffer(kControlBytesMax);
    const auto received = connection_.Receive(buffer, &fds_, absl::Seconds(60));
    REQUIRE(received.ok());
    const std::span<const uint8_t> bytes(buffer.data(), received->size_bytes);
    const auto header = DecodeHeader(bytes, ControlReader::kLibrary);
    REQUIRE(header.ok());
    return {header->request_id, *DecodeReply(*header, bytes)};
  }
  Reply Call(const Request& request) {
    Send(request, 7);
    return Receive().second;
  }
  ErrorReply Error(const Request& request) {
    const Reply reply = Call(request);
    const auto* const error = std::get_if<ErrorReply>(&reply);
    return error == nullptr ? ErrorReply{} : *error;
  }
  // Sends nothing more, and waits until the daemon hangs up too. False if it sends something.
  bool HangUp() {
    connection_.FinishSending();
    return AwaitHangUp();
  }
  // Waits until the daemon hangs up, unasked.
  bool AwaitHangUp() {
    std::vector<uint8_t> buffer(kControlBytesMax);
    const auto received = connection_.Receive(buffer, &fds_, absl::Seconds(60));
    return received.ok() && received->result == ReceiveResult::kHangup;
  }
  // The descriptors that came with the last reply.
  std::vector<UniqueFd> TakeFds() { return std::exchange(fds_, {}); }

 private:
  UnixConnection connection_;
  std::vector<UniqueFd> fds_;
};

}  // namespace specd::test
