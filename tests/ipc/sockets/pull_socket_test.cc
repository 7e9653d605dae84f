// A PullSocket takes messages from libzmq's PUSH sockets, and what a stranger costs is bounded.
#include "ipc/sockets/pull_socket.h"

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/ipc/sockets/raw_peer.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

using std::string_view_literals::operator""sv;
using Messages = std::vector<std::pair<std::string, std::string>>;

struct Fixture {
  Fixture() {
    absl::StatusOr<PullSocket> made = PullSocket::Make(
        &*context,
        {.on_trouble = [this](std::string_view what) { troubles += std::string(what) + "\n"; }});
    REQUIRE(made.ok());
    pull.emplace(*std::move(made));
    REQUIRE(pull->Bind("ipc://" + path).ok());
  }
  void Wait() {
    absl::StatusOr<std::unique_ptr<WaitSet>> waits = WaitSet::Make();
    REQUIRE(waits.ok());
    pull->AddTo(waits->get());
    (*waits)->Wait(absl::Milliseconds(10), [] { return false; });
  }
  // Takes messages until there are so many. A message with the topic "bad" is refused.
  Messages Take(size_t count) {
    Messages all;
    const auto take = [&](std::string_view topic, std::string_view payload) {
      all.emplace_back(topic, payload);
      return topic == "bad" ? absl::InvalidArgumentError("it is bad") : absl::OkStatus();
    };
    for (int i = 0; i < 3000 && all.size() < count; ++i) {
      if (!pull->Receive(take)) Wait();
    }
    return all;
  }
  bool Told(std::string_view word) const { return troubles.find(word) != std::string::npos; }
  void TakeUntilTold(std::string_view word) {
    for (int i = 0; i < 3000 && !Told(word); ++i) Take(1);
    REQUIRE(Told(word));
  }

  std::string troubles;
  const TemporaryFolder folder;
  const std::string path = folder.Of("s");
  absl::StatusOr<ZmqContext> context = ZmqContext::Make();
  std::optional<PullSocket> pull;
};

TEST_SUITE("unit") {
  TEST_CASE("zmq: messages of PUSH sockets and of threads arrive whole and in order") {
    Fixture f;
    REQUIRE(f.pull->Bind("inproc://aborts").ok());
    for (const std::string& endpoint : {"ipc://" + f.path, std::string("inproc://aborts")}) {
      CAPTURE(endpoint);
      absl::StatusOr<ZmqSocket> push = ZmqSocket::Make(&*f.context, ZmqKind::kPush, {});
      REQUIRE(push.ok());
      REQUIRE(push->Connect(endpoint).ok());
      Messages sent;
      const auto none = [](std::string_view, std::string_view) { return absl::OkStatus(); };
      for (const size_t size : {0, 1, 255, 256, 4096}) {
        for (int i = 0; i < 50; ++i) sent.emplace_back(std::to_string(i), std::string(size, 'p'));
      }
      for (const auto& [topic, payload] : sent) {
        const std::string_view frames[] = {topic, payload};
        // The connection is made in the background, and the puller's part of it here.
        while (!*push->Send(frames)) f.pull->Receive(none);
      }
      CHECK(f.Take(sent.size()) == sent);
    }
    CHECK(f.troubles.empty());
  }

  TEST_CASE("pull: a ping is answered") {
    Fixture f;
    RawPeer raw(f.path, "PUSH");
    raw.Say("\4\x0b\4PING\0\1mark\1\1a\0\1b"sv);
    CHECK(f.Take(1) == Messages{{"a", "b"}});
    CHECK(raw.ReadUntil("\4PONGmark"sv));
  }
}

TEST_SUITE("fault") {
  TEST_CASE("pull: libzmq kept the frames of a message without end") {
    Fixture f;
    RawPeer raw(f.path, "PUSH");
    raw.Say("\1\1a\1\1b\1\1c"sv);
    f.TakeUntilTold("more than two frames");
    CHECK_FALSE(raw.ReadUntil("never"));
    RawPeer other(f.path, "PUSH");
    other.Say("\1\1a\0\1b"sv);
    CHECK(f.Take(1) == Messages{{"a", "b"}});
  }

  TEST_CASE("pull: a peer whose message is refused is disconnected, and the rest is not taken") {
    Fixture f;
    RawPeer raw(f.path, "PUSH");
    raw.Say("\1\1a\0\1b\1\3bad\0\1b\1\1c\0\1d"sv);
    CHECK(f.Take(2) == Messages{{"a", "b"}, {"bad", "b"}});
    f.TakeUntilTold("is disconnected: it is bad");
    CHECK_FALSE(raw.ReadUntil("never"));
    CHECK(f.Take(0).empty());
  }

  TEST_CASE("pull: a message that waits for its reader stays with its sender") {
    Fixture f;
    RawPeer raw(f.path, "PUSH");
    raw.BoundSends();
    const std::string message =
        "\1\1a" + std::string("\2\0\0\0\0\0\0\x10\0"sv) + std::string(4096, 'x');
    size_t count = 0;
    while (count < 100000 && raw.TrySay(message)) ++count;
    CHECK(count < 10000);  // the buffers of a socket, and nothing here
  }
}

}  // namespace
}  // namespace specd
