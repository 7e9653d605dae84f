// RawPeer is a peer of an ipc endpoint whose bytes a test chooses.
//
// Its constructor connects and completes the handshake. Failures fail the test; one thread.
#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <array>
#include <string>
#include <string_view>

#include "ipc/base/unique_fd.h"
#include "ipc/sockets/zmtp.h"

namespace specd {

// A connection that speaks by hand, and reads when the test does.
class RawPeer {
 public:
  RawPeer(const std::string& path, std::string_view type)
      : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    REQUIRE(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    const timeval patience = {.tv_sec = 30, .tv_usec = 0};
    REQUIRE(setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
    // The lengths of READY and of its value differ with the name.
    std::string hello = ZmtpHello(ZmtpRole::kPublisher);
    hello[64 + 1] = static_cast<char>(hello[64 + 1] + type.size() - 3);
    hello[hello.size() - 4] = static_cast<char>(type.size());
    hello.replace(hello.size() - 3, 3, type);
    Say(hello);
  }
  // False if the other end has hung up.
  bool TrySay(std::string_view bytes) {
    return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  void Say(std::string_view bytes) { REQUIRE(TrySay(bytes)); }
  // A send to a full connection fails soon.
  void BoundSends() {
    const timeval patience = {.tv_sec = 0, .tv_usec = 100000};
    REQUIRE(setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0);
  }
  // Reads up to the text, and past it; false if the connection ends before.
  bool ReadUntil(std::string_view text) {
    while (true) {
      if (const size_t at = seen_.find(text); at != std::string::npos) {
        seen_.erase(0, at + text.size());
        return true;
      }
      std::array<char, 65536> buffer;
      const ssize_t size = recv(fd_.get(), buffer.data(), buffer.size(), 0);
      if (size <= 0) return false;
      seen_.append(buffer.data(), static_cast<size_t>(size));
    }
  }
  // Reads up to so many bytes, if they are there.
  void ReadSome(size_t bytes) {
    std::string buffer(bytes, '\0');
    recv(fd_.get(), buffer.data(), bytes, MSG_DONTWAIT);
  }
  void Hang() { fd_.Reset(); }

 private:
  UniqueFd fd_;
  std::string seen_;
};

}  // namespace specd
