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

  Reply Call(const Request& request) {
    const auto message = EncodeRequest(request, 7);
    REQUIRE(message.ok());
    REQUIRE(connection_.Send(*message, {}, absl::Seconds(60)).ok());
    std::vector<uint8_t> buffer(kControlBytesMax);
    const auto received = connection_.Receive(buffer, &fds_, absl::Seconds(60));
    REQUIRE(received.ok());
    const std::span<const uint8_t> bytes(buffer.data(), received->size_bytes);
    return *DecodeReply(*DecodeHeader(bytes, ControlReader::kLibrary), bytes);
  }
  ErrorReply Error(const Request& request) {
    const Reply reply = Call(request);
    const auto* const error = std::get_if<ErrorReply>(&reply);
    return error == nullptr ? ErrorReply{} : *error;
  }
  // The descriptors that came with the last reply.
  std::vector<UniqueFd> TakeFds() { return std::exchange(fds_, {}); }

 private:
  UnixConnection connection_;
  std::vector<UniqueFd> fds_;
};

}  // namespace specd::test
