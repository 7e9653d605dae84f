// An endpoint turns away users who are not allowed and connections beyond its bound, and a
// process without descriptors goes on.
#include "ipc/sockets/accept_gate.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ipc/base/descriptors.h"
#include "ipc/base/unique_fd.h"
#include "ipc/sockets/broadcaster.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

UniqueFd ConnectTo(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return UniqueFd();
  }
  return fd;
}

// An endpoint greets whom it lets in, and closes the others.
bool IsLetIn(const UniqueFd& fd) {
  pollfd polled{fd.get(), POLLIN, 0};
  char byte = 0;
  return poll(&polled, 1, 10000) == 1 && recv(fd.get(), &byte, 1, 0) == 1;
}

struct Endpoint {
  explicit Endpoint(AcceptRules rules) {
    rules.on_turned_away = [this](std::string_view text) {
      const std::lock_guard lock(mutex);
      whys.emplace_back(text);
    };
    absl::StatusOr<std::unique_ptr<Broadcaster>> made =
        Broadcaster::Create("ipc://" + path, {.accept = rules});
    REQUIRE(made.ok());
    broadcaster = *std::move(made);
  }
  std::string Whys() {
    const std::lock_guard lock(mutex);
    std::string all;
    for (const std::string& why : whys) all += why + "\n";
    return all;
  }

  std::mutex mutex;
  std::vector<std::string> whys;
  const TemporaryFolder folder;
  const std::string path = folder.Of("s");
  std::unique_ptr<Broadcaster> broadcaster;
};

TEST_SUITE("unit") {
  TEST_CASE("gate: no more are connected than may be, and a place that is free is given again") {
    Endpoint endpoint({.connections_max = 2});
    UniqueFd first = ConnectTo(endpoint.path);
    UniqueFd second = ConnectTo(endpoint.path);
    CHECK(IsLetIn(first));
    CHECK(IsLetIn(second));
    CHECK_FALSE(IsLetIn(ConnectTo(endpoint.path)));
    CHECK(endpoint.Whys() == "2 are connected, as many as may be\n");
    first = UniqueFd();
    // The endpoint closes its end in its own time.
    bool let_in = false;
    for (int i = 0; i < 10000 && !let_in; ++i) let_in = IsLetIn(ConnectTo(endpoint.path));
    CHECK(let_in);
    CHECK(send(second.get(), "x", 1, MSG_NOSIGNAL) == 1);  // it was never cut off
  }

  TEST_CASE("gate: a user who is not allowed is turned away") {
    constexpr uid_t kNobody = 65534;
    if (geteuid() != 0) {
      MESSAGE("skipped: only root can be two users");
      return;
    }
    for (const bool allowed : {false, true}) {
      CAPTURE(allowed);
      AcceptRules rules;
      if (allowed) rules.uids = {12345, kNobody};
      Endpoint endpoint(rules);
      REQUIRE(chmod(endpoint.folder.path().c_str(), 0711) == 0);
      REQUIRE(chmod(endpoint.path.c_str(), 0777) == 0);
      CHECK(IsLetIn(ConnectTo(endpoint.path)));
      const pid_t child = fork();
      if (child == 0) {
        if (setuid(kNobody) != 0) _exit(2);
        _exit(IsLetIn(ConnectTo(endpoint.path)) ? 1 : 0);
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      REQUIRE(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == (allowed ? 1 : 0));
      CHECK((endpoint.Whys().find("uid 65534") != std::string::npos) == !allowed);
    }
  }

  TEST_CASE("gate: a process whose descriptors are used up turns connections away and goes on") {
    Endpoint endpoint({});
    const UniqueFd first = ConnectTo(endpoint.path);
    CHECK(IsLetIn(first));
    // Before the endpoint lets in a second one, it has inspected the first. When it does so for the
    // first time, a sanitizer opens a pipe, which needs descriptors.
    const UniqueFd second = ConnectTo(endpoint.path);
    CHECK(IsLetIn(second));
    // Another process connects: this one's descriptors are for the endpoint alone.
    int to_child[2];
    int from_child[2];
    REQUIRE(pipe(to_child) == 0);
    REQUIRE(pipe(from_child) == 0);
    const pid_t child = fork();
    if (child == 0) {
      close(to_child[1]);  // so that the child ends with its parent
      char byte = 0;
      while (read(to_child[0], &byte, 1) == 1 && byte == 'c') {
        byte = IsLetIn(ConnectTo(endpoint.path)) ? 'y' : 'n';
        if (write(from_child[1], &byte, 1) != 1) break;
      }
      _exit(0);
    }
    const auto is_let_in = [&] {
      char byte = 'c';
      REQUIRE(write(to_child[1], &byte, 1) == 1);
      REQUIRE(read(from_child[0], &byte, 1) == 1);
      return byte == 'y';
    };
    rlimit before = {};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit low = before;
    low.rlim_cur = 64;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
    std::vector<UniqueFd> all;
    while (true) {
      UniqueFd one(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!one.valid()) break;
      all.push_back(std::move(one));
    }
    for (int i = 0; i < 3; ++i) CHECK_FALSE(is_let_in());
    CHECK(endpoint.Whys().find("no descriptor left") != std::string::npos);
    // Of 64 numbers, 16 are for the process, and 16 more are not for subscribers.
    CHECK_FALSE(IsReservedFrom(Peer::kSubscriber, 31));
    CHECK(IsReservedFrom(Peer::kSubscriber, 32));
    CHECK_FALSE(IsReservedFrom(Peer::kEngine, 47));
    CHECK(IsReservedFrom(Peer::kEngine, 48));
    // The system would give this one.
    all.pop_back();
    CHECK_FALSE(is_let_in());
    all.clear();
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(is_let_in());
    REQUIRE(write(to_child[1], "q", 1) == 1);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(fd);
  }
}

}  // namespace
}  // namespace specd
