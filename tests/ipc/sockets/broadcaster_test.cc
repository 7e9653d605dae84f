// A Broadcaster serves libzmq's SUB sockets, and its memory is bounded whatever they do.
#include "ipc/sockets/broadcaster.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ipc/sockets/zmq_socket.h"
#include "tests/ipc/sockets/raw_peer.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

using std::string_view_literals::operator""sv;
constexpr absl::Duration kLong = absl::Seconds(30);
constexpr size_t kPoolBytes = size_t{4} << 20;

std::string Subscription(std::string_view prefix) {
  std::string out("\0"sv);
  out.push_back(static_cast<char>(prefix.size() + 1));
  out += '\1';
  out += prefix;
  return out;
}

struct RawSubscriber : RawPeer {
  explicit RawSubscriber(const std::string& path) : RawPeer(path, "SUB") {}
};

struct Fixture {
  explicit Fixture(BroadcastOptions options = {}) {
    options.queued_bytes_max = kPoolBytes;
    options.on_trouble = [this](std::string_view what) {
      const std::lock_guard lock(mutex);
      troubles += std::string(what) + "\n";
    };
    absl::StatusOr<std::unique_ptr<Broadcaster>> made =
        Broadcaster::Create("ipc://" + path, options);
    REQUIRE(made.ok());
    broadcaster = *std::move(made);
  }
  ZmqSocket Connect(const std::vector<std::string>& topics) {
    absl::StatusOr<ZmqSocket> socket = ZmqSocket::Make(&*context, ZmqKind::kSubscribe, {});
    REQUIRE(socket.ok());
    for (const std::string& topic : topics) REQUIRE(socket->Subscribe(topic).ok());
    REQUIRE(socket->Connect("ipc://" + path).ok());
    // The connection is made in the background.
    std::vector<std::string> frames;
    absl::StatusOr<bool> got = false;
    while (got.ok() && !*got) {
      broadcaster->Send(topics.front(), "ready");
      got = socket->Receive(&frames, absl::Milliseconds(10));
    }
    REQUIRE(got.ok());
    broadcaster->Send(topics.front(), "last");
    while (frames[1] != "last") REQUIRE(*socket->Receive(&frames, kLong));
    return *std::move(socket);
  }
  RawSubscriber ConnectRaw(std::string_view topic) {
    RawSubscriber raw(path);
    raw.Say(Subscription(topic));
    raw.Say("\4\x0b\4PING\0\1mark"sv);
    REQUIRE(raw.ReadUntil("\4PONGmark"sv));  // the subscription was read before
    return raw;
  }
  bool Told(std::string_view word) {
    const std::lock_guard lock(mutex);
    return troubles.find(word) != std::string::npos;
  }

  std::mutex mutex;
  std::string troubles;
  const TemporaryFolder folder;
  const std::string path = folder.Of("s");
  absl::StatusOr<ZmqContext> context = ZmqContext::Make();
  std::unique_ptr<Broadcaster> broadcaster;
};

TEST_SUITE("unit") {
  TEST_CASE("zmq: subscribers of a broadcaster get what they asked for, whole and in order") {
    Fixture f;
    ZmqSocket both = f.Connect({"text/a/", "tokens", "t"});
    ZmqSocket one = f.Connect({"text/a/"});
    std::vector<std::string> payloads;
    for (const size_t size : {0, 1, 255, 256, 65536, 1 << 19}) payloads.emplace_back(size, 'p');
    for (const std::string& payload : payloads) {
      for (const char* topic : {"text/a/", "tokens", "heartbeat", "text/ab/"}) {
        f.broadcaster->Send(topic, payload);
      }
      // Each has read this round before the next one, so none loses anything.
      std::vector<std::string> frames;
      for (const char* topic : {"text/a/", "tokens", "text/ab/"}) {
        do {
          REQUIRE(*both.Receive(&frames, kLong));
        } while (frames[1] == "ready" || frames[1] == "last");
        REQUIRE(frames == std::vector<std::string>{topic, payload});
      }
      REQUIRE(*one.Receive(&frames, kLong));
      REQUIRE(frames == std::vector<std::string>{"text/a/", payload});
    }
    CHECK(f.broadcaster->counters().lost_messages == 0);
  }

  TEST_CASE("broadcaster: a subscriber that left costs nothing") {
    Fixture f;
    RawSubscriber raw = f.ConnectRaw("a");
    CHECK(f.broadcaster->queued_bytes() > 0);  // its subscription
    for (int i = 0; i < 100; ++i) f.broadcaster->Send("a", std::string(10000, 'x'));
    CHECK(f.broadcaster->queued_bytes() > 0);
    raw.Hang();
    CHECK(Eventually([&] { return f.broadcaster->queued_bytes() == 0; }));
  }

  TEST_CASE("broadcaster: a message that more follow waits for the last of them") {
    Fixture f;
    RawSubscriber deaf = f.ConnectRaw("a");  // which reads nothing, so what is queued stays
    // More than a sixteenth of the pool waits for none.
    const std::string large(kPoolBytes / 4, 'x');
    f.broadcaster->Send("a", large, /*more_follow=*/true);
    CHECK(f.broadcaster->queued_bytes() > large.size());
    const std::string small(kPoolBytes / 32, 'x');
    f.broadcaster->Send("a", small, /*more_follow=*/true);
    CHECK(f.broadcaster->queued_bytes() < large.size() + small.size());
    f.broadcaster->Send("b", "", /*more_follow=*/false);  // the last one may be another's
    CHECK(f.broadcaster->queued_bytes() > large.size() + small.size());
  }

  TEST_CASE("zmq: messages of a broadcaster that are queued together come in order") {
    Fixture f;
    ZmqSocket socket = f.Connect({"a", "b"});
    for (int i = 0; i < 100; ++i) {
      f.broadcaster->Send(i % 3 == 0 ? "b" : i % 3 == 1 ? "a" : "c", std::to_string(i), i < 99);
    }
    std::vector<std::string> frames;
    for (int i = 0; i < 100; ++i) {
      if (i % 3 == 2) continue;
      REQUIRE(*socket.Receive(&frames, kLong));
      REQUIRE(frames == std::vector<std::string>{i % 3 == 0 ? "b" : "a", std::to_string(i)});
    }
  }

  TEST_CASE("zmq: messages of a broadcaster that waited at its end are sent") {
    Fixture f;
    ZmqSocket socket = f.Connect({"a"});
    for (int i = 0; i < 100; ++i) f.broadcaster->Send("a", std::to_string(i));
    f.broadcaster.reset();
    std::vector<std::string> frames;
    for (int i = 0; i < 100; ++i) {
      REQUIRE(*socket.Receive(&frames, kLong));
      REQUIRE(frames[1] == std::to_string(i));
    }
  }
}

TEST_SUITE("fault") {
  TEST_CASE("broadcaster: libzmq kept each of a peer's prefixes, without bound") {
    Fixture f({.subscriptions = {.admits = [](std::string_view prefix) { return prefix != "no"; },
                                 .prefixes_max = 100}});
    RawSubscriber raw = f.ConnectRaw("a");
    const size_t of_one_bytes = f.broadcaster->queued_bytes();
    for (int i = 0; i < 10000; ++i) raw.Say(Subscription("a" + std::to_string(i)));
    raw.Say(Subscription("no"));
    raw.Say("\4\x0a\4PING\0\1end"sv);
    REQUIRE(raw.ReadUntil("\4PONGend"sv));
    CHECK(f.broadcaster->counters().refused_subscriptions == 9901 + 1);
    CHECK(f.broadcaster->queued_bytes() <= 100 * (of_one_bytes + 10));
    CHECK(Eventually([&] { return f.Told("subscriptions are refused"); }));
    // Its others, and other peers, are served.
    RawSubscriber other = f.ConnectRaw("b");
    f.broadcaster->Send("b", "for the other");
    REQUIRE(other.ReadUntil("for the other"));
    f.broadcaster->Send("a98", "for both of its prefixes, once");
    REQUIRE(raw.ReadUntil("for both of its prefixes, once"));
    // A canceled one makes room.
    std::string cancel = Subscription("a0");
    cancel[2] = '\0';
    raw.Say(cancel);
    raw.Say(Subscription("new"));
    raw.Say("\4\x0a\4PING\0\1end"sv);
    REQUIRE(raw.ReadUntil("\4PONGend"sv));
    f.broadcaster->Send("new", "hello");
    REQUIRE(raw.ReadUntil("hello"));
  }

  TEST_CASE("broadcaster: what waited for a deaf subscriber grew by messages of any size") {
    Fixture f;
    std::vector<RawSubscriber> deaf;
    for (int i = 0; i < 4; ++i) deaf.push_back(f.ConnectRaw(std::string(1, 'a' + char(i))));
    RawSubscriber prompt = f.ConnectRaw("p");
    size_t most_bytes = 0;
    for (int i = 0; i < 1000; ++i) {
      for (int one = 0; one < 4; ++one) {
        f.broadcaster->Send(std::string(1, 'a' + char(one)), std::string(20000, 'x'));
      }
      const std::string payload = std::to_string(i) + std::string(50000, 'y');
      f.broadcaster->Send("p", payload);
      most_bytes = std::max(most_bytes, f.broadcaster->queued_bytes());
      REQUIRE(prompt.ReadUntil(ZmtpMessage("p", payload)));  // the one who reads loses nothing
    }
    // 80 MB were sent to four who read nothing. Each may have as much as is free: a fifth.
    CHECK(most_bytes <= kPoolBytes);
    CHECK(f.broadcaster->queued_bytes() > kPoolBytes * 4 / 5 - 4 * 21000);
    CHECK(f.broadcaster->queued_bytes() <= kPoolBytes * 4 / 5 + 4 * 21000);
    CHECK(f.broadcaster->counters().lost_messages > 0);
    // One that reads again goes on, with a gap.
    f.broadcaster->Send("a", "too late");
    REQUIRE(deaf[0].ReadUntil("xx"));
    for (int i = 0; i < 20; ++i) REQUIRE(deaf[0].ReadUntil(std::string(20000, 'x')));
    REQUIRE(Eventually([&] {
      const uint64_t lost = f.broadcaster->counters().lost_messages;
      f.broadcaster->Send("a", "again");
      return f.broadcaster->counters().lost_messages == lost;
    }));
    CHECK(deaf[0].ReadUntil("again"));
  }

  TEST_CASE("broadcaster: a deaf subscriber kept its memory for ever") {
    Fixture f({.deaf_max = absl::Milliseconds(20)});
    RawSubscriber deaf = f.ConnectRaw("a");
    const size_t idle_bytes = f.broadcaster->queued_bytes();
    size_t most_bytes = 0;
    CHECK(Eventually([&] {
      f.broadcaster->Send("a", std::string(20000, 'x'));
      most_bytes = std::max(most_bytes, f.broadcaster->queued_bytes());
      return f.broadcaster->counters().disconnected == 1;
    }));
    CHECK(most_bytes > idle_bytes + 100 * 20000);
    CHECK(Eventually([&] { return f.broadcaster->queued_bytes() == 0; }));
    CHECK(f.Told("loses messages"));
    CHECK(f.Told("is disconnected: it has read nothing"));
    CHECK_FALSE(deaf.ReadUntil("no more comes"));  // it ends
  }

  TEST_CASE("broadcaster: a peer that says nothing or nonsense is disconnected") {
    Fixture f({.deaf_max = absl::Milliseconds(20), .handshake_max = absl::Milliseconds(50)});
    RawSubscriber nonsense(f.path);
    nonsense.Say("\1\2\1a"sv);
    CHECK_FALSE(nonsense.ReadUntil("never"));
    CHECK(f.Told("several frames"));
    const UniqueFd silent(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    f.path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    REQUIRE(connect(silent.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
            0);
    CHECK(Eventually([&] { return f.Told("has not said what it is"); }));
  }
}

}  // namespace
}  // namespace specd
