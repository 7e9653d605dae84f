// Sockets: messages and descriptors whole or not at all, and every way in which a peer can leave.
#include "ipc/sockets/unix_socket.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/ipc/segment/ipc_test_support.h"
#include "tests/support/open_fds.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

struct SocketFolder : TemporaryFolder {
  std::string socket() const { return Of("s"); }
};

struct Connected {
  Connected() {
    absl::StatusOr<UnixListener> made = UnixListener::Bind(dir.socket(), 0660);
    REQUIRE(made.ok());
    listener.emplace(*std::move(made));
    absl::StatusOr<UnixConnection> client = UnixConnection::Connect(dir.socket(), absl::Seconds(5));
    REQUIRE(client.ok());
    engine.emplace(*std::move(client));
    absl::StatusOr<std::optional<UnixConnection>> accepted = listener->Accept(absl::Seconds(5));
    REQUIRE(accepted.ok());
    REQUIRE(accepted->has_value());
    daemon.emplace(std::move(**accepted));
  }
  SocketFolder dir;
  std::optional<UnixListener> listener;
  std::optional<UnixConnection> engine;
  std::optional<UnixConnection> daemon;
};

std::span<const uint8_t> Bytes(const char* text) {
  return {reinterpret_cast<const uint8_t*>(text), std::strlen(text)};
}

// Sends any number of descriptors, which UnixConnection::Send never does.
void SendRaw(int socket_fd, const std::vector<int>& fds) {
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  char byte = 'x';
  iovec data{&byte, 1};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
  REQUIRE(sendmsg(socket_fd, &message, 0) == 1);
}

constexpr absl::Duration kLong = absl::Seconds(10);

TEST_SUITE("unit") {
  TEST_CASE("socket: a message arrives whole, with its descriptors, from a known user") {
    Connected pair;
    CHECK(pair.daemon->peer().pid == getpid());
    CHECK(pair.daemon->peer().uid == getuid());
    CHECK(pair.daemon->peer().gid == getgid());
    const UniqueFd memory = test::MakeMemfd(4096, 0);
    REQUIRE(pwrite(memory.get(), "hello", 5, 0) == 5);
    const int fds[] = {memory.get()};
    REQUIRE(pair.engine->Send(Bytes("first"), fds, kLong).ok());
    REQUIRE(pair.engine->Send(Bytes("second!"), {}, kLong).ok());

    std::array<uint8_t, 64> buffer;
    std::vector<UniqueFd> received;
    absl::StatusOr<Received> first = pair.daemon->Receive(buffer, &received, kLong);
    REQUIRE(first.ok());
    CHECK(first->result == ReceiveResult::kMessage);
    CHECK(first->size_bytes == 5);
    CHECK(std::memcmp(buffer.data(), "first", 5) == 0);
    REQUIRE(received.size() == 1);
    CHECK((fcntl(received[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
    char text[5];
    REQUIRE(pread(received[0].get(), text, 5, 0) == 5);
    CHECK(std::memcmp(text, "hello", 5) == 0);
    absl::StatusOr<Received> second = pair.daemon->Receive(buffer, &received, kLong);
    REQUIRE(second.ok());
    CHECK(second->size_bytes == 7);
    CHECK(received.empty());
    absl::StatusOr<Received> none = pair.daemon->Receive(buffer, &received, absl::ZeroDuration());
    REQUIRE(none.ok());
    CHECK(none->result == ReceiveResult::kTimeout);
  }

  TEST_CASE("socket: too many descriptors are an error, and all of them are closed") {
    Connected pair;
    const UniqueFd memory = test::MakeMemfd(4096, 0);
    const int before = CountOpenFds();
    std::array<uint8_t, 64> buffer;
    std::vector<UniqueFd> received;
    SendRaw(pair.engine->fd(), std::vector<int>(kMessageFdsMax + 1, memory.get()));
    const absl::StatusOr<Received> result = pair.daemon->Receive(buffer, &received, kLong);
    CHECK(ErrorFieldOf(result.status()) == "fds");
    CHECK(received.empty());
    CHECK(CountOpenFds() == before);
    // As many as are allowed come through.
    SendRaw(pair.engine->fd(), std::vector<int>(kMessageFdsMax, memory.get()));
    REQUIRE(pair.daemon->Receive(buffer, &received, kLong).ok());
    CHECK(received.size() == kMessageFdsMax);
    received.clear();
    CHECK(CountOpenFds() == before);
  }

  TEST_CASE("socket: a message longer than the buffer is an error, and its descriptor is closed") {
    Connected pair;
    const UniqueFd memory = test::MakeMemfd(4096, 0);
    const int before = CountOpenFds();
    const int fds[] = {memory.get()};
    REQUIRE(pair.engine->Send(Bytes("123456789"), fds, kLong).ok());
    std::array<uint8_t, 8> buffer;
    std::vector<UniqueFd> received;
    const absl::StatusOr<Received> result = pair.daemon->Receive(buffer, &received, kLong);
    CHECK(ErrorFieldOf(result.status()) == "message");
    CHECK(received.empty());
    CHECK(CountOpenFds() == before);
  }

  TEST_CASE("socket: a closed peer is a hang-up, after the messages it had sent") {
    Connected pair;
    CHECK_FALSE(pair.daemon->PeerGone());
    REQUIRE(pair.engine->Send(Bytes("last words"), {}, kLong).ok());
    pair.engine.reset();
    CHECK(pair.daemon->PeerGone());
    std::array<uint8_t, 64> buffer;
    std::vector<UniqueFd> received;
    absl::StatusOr<Received> result = pair.daemon->Receive(buffer, &received, kLong);
    REQUIRE(result.ok());
    CHECK(result->result == ReceiveResult::kMessage);
    result = pair.daemon->Receive(buffer, &received, kLong);
    REQUIRE(result.ok());
    CHECK(result->result == ReceiveResult::kHangup);
    // And no signal:
    CHECK(ErrorCodeOf(pair.daemon->Send(Bytes("hello?"), {}, kLong)) == SPECD_ERROR_DISCONNECTED);
  }

  TEST_CASE("socket: a peer that leaves our message unread is a hang-up, not a fault") {
    Connected pair;
    REQUIRE(pair.daemon->Send(Bytes("unread"), {}, kLong).ok());
    pair.engine.reset();
    std::array<uint8_t, 64> buffer;
    std::vector<UniqueFd> received;
    const absl::StatusOr<Received> result = pair.daemon->Receive(buffer, &received, kLong);
    REQUIRE(result.ok());
    CHECK(result->result == ReceiveResult::kHangup);
  }

  TEST_CASE("socket: an empty message counts as a hang-up") {
    Connected pair;
    REQUIRE(send(pair.engine->fd(), "", 0, 0) == 0);
    std::array<uint8_t, 64> buffer;
    std::vector<UniqueFd> received;
    const absl::StatusOr<Received> result = pair.daemon->Receive(buffer, &received, kLong);
    REQUIRE(result.ok());
    CHECK(result->result == ReceiveResult::kHangup);
  }

  TEST_CASE("socket: a peer killed in the middle of anything hangs up") {
    Connected pair;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      pair.daemon.reset();
      while (true) pause();
    }
    pair.engine.reset();  // the child holds the only engine's end now
    CHECK_FALSE(pair.daemon->PeerGone());
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(pair.daemon->PeerGone());
  }

  TEST_CASE("socket: a peer that never reads is an error, not a stop") {
    Connected pair;
    const std::vector<uint8_t> large(60000, 'x');
    absl::Status status;
    for (int i = 0; i < 1000 && status.ok(); ++i) {
      status = pair.daemon->Send(large, {}, absl::Milliseconds(1));
    }
    CHECK(ErrorCodeOf(status) == SPECD_ERROR_TIMEOUT);
    CHECK(status.message().find("does not read") != absl::string_view::npos);
  }

  TEST_CASE("socket: the path has its limits, the file its mode") {
    const SocketFolder dir;
    const std::string longest(kSocketPathMax + 1, 'x');
    CHECK(ErrorFieldOf(UnixListener::Bind(longest, 0660).status()) == "path");
    CHECK(ErrorFieldOf(UnixListener::Bind("", 0660).status()) == "path");
    CHECK(ErrorFieldOf(UnixListener::Bind(std::string("\0abstract", 9), 0660).status()) == "path");
    CHECK(ErrorFieldOf(UnixConnection::Connect(longest, kLong).status()) == "path");
    const mode_t old_mask = umask(0);
    const absl::StatusOr<UnixListener> listener = UnixListener::Bind(dir.socket(), 0660);
    umask(old_mask);
    REQUIRE(listener.ok());
    struct stat info = {};
    REQUIRE(stat(dir.socket().c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0660);
    CHECK_FALSE(UnixListener::Bind(dir.socket(), 0660).ok());  // it exists
  }

  TEST_CASE("socket: connecting says what is wrong") {
    const SocketFolder dir;
    CHECK(ErrorCodeOf(UnixConnection::Connect(dir.socket(), kLong).status()) ==
          SPECD_ERROR_NOT_FOUND);
    {
      absl::StatusOr<UnixListener> listener = UnixListener::Bind(dir.socket(), 0660);
      REQUIRE(listener.ok());
      absl::StatusOr<std::optional<UnixConnection>> none = listener->Accept(absl::ZeroDuration());
      REQUIRE(none.ok());
      CHECK_FALSE(none->has_value());
    }
    // The file is left, as after a crash.
    const absl::Status stale = UnixConnection::Connect(dir.socket(), kLong).status();
    CHECK(ErrorCodeOf(stale) == SPECD_ERROR_DISCONNECTED);
    CHECK(stale.message().find("nobody listens") != absl::string_view::npos);
    // Bug: a directory, and a file that is no socket, were a daemon that had ended.
    for (const auto& [path, what] : {std::pair{std::string("/tmp"), "a directory"},
                                     std::pair{std::string(__FILE__), "a file"}}) {
      if (std::filesystem::exists(path)) {
        const absl::Status none = UnixConnection::Connect(path, kLong).status();
        CHECK(ErrorCodeOf(none) == SPECD_ERROR_NOT_FOUND);
        CHECK(none.message().find(what) != absl::string_view::npos);
      }
    }
    unlink(dir.socket().c_str());
    // A socket of another type.
    const UniqueFd stream(socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, dir.socket().data(), dir.socket().size());
    REQUIRE(bind(stream.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(stream.get(), 1) == 0);
    CHECK(ErrorCodeOf(UnixConnection::Connect(dir.socket(), kLong).status()) ==
          SPECD_ERROR_NOT_FOUND);
  }
}

}  // namespace
}  // namespace specd
