// ZeroMQ sockets: frames arrive, limits hold, and what cannot be done is a status.
#include "ipc/sockets/zmq_socket.h"

#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr absl::Duration kLong = absl::Seconds(10);

ZmqContext MakeContext() {
  absl::StatusOr<ZmqContext> context = ZmqContext::Make();
  REQUIRE(context.ok());
  return *std::move(context);
}

ZmqSocket MakeSocket(ZmqContext* context, ZmqKind kind, const ZmqOptions& options = {}) {
  absl::StatusOr<ZmqSocket> socket = ZmqSocket::Make(context, kind, options);
  REQUIRE(socket.ok());
  return *std::move(socket);
}

TEST_SUITE("unit") {
  TEST_CASE("zmq: a message of several frames arrives as it was sent") {
    ZmqContext context = MakeContext();
    ZmqSocket pull = MakeSocket(&context, ZmqKind::kPull);
    REQUIRE(pull.Bind("inproc://pull").ok());
    ZmqSocket push = MakeSocket(&context, ZmqKind::kPush);
    REQUIRE(push.Connect("inproc://pull").ok());
    const std::string binary("a\0b", 3);
    const std::string_view frames[] = {"topic", binary, ""};
    // The connection is made in the background; until then there is no peer to queue for.
    absl::StatusOr<bool> sent = false;
    while (sent.ok() && !*sent) sent = push.Send(frames);
    REQUIRE(sent.ok());
    std::vector<std::string> received;
    const absl::StatusOr<bool> got = pull.Receive(&received, kLong);
    REQUIRE(got.ok());
    REQUIRE(*got);
    CHECK(received == std::vector<std::string>{"topic", binary, ""});
    const std::string_view shorter[] = {"x"};
    REQUIRE(*push.Send(shorter));
    REQUIRE(*pull.Receive(&received, kLong));
    CHECK(received == std::vector<std::string>{"x"});
    CHECK_FALSE(*pull.Receive(&received, absl::ZeroDuration()));
    CHECK(received.empty());
  }

  TEST_CASE("zmq: a subscription is a prefix, and the text topic's delimiter makes it exact") {
    ZmqContext context = MakeContext();
    ZmqSocket publisher = MakeSocket(&context, ZmqKind::kPublish);
    REQUIRE(publisher.Bind("inproc://text").ok());
    ZmqSocket subscriber = MakeSocket(&context, ZmqKind::kSubscribe);
    REQUIRE(subscriber.Connect("inproc://text").ok());
    REQUIRE(subscriber.Subscribe("text/req-1/").ok());
    REQUIRE(subscriber.Subscribe("ready").ok());
    // A subscription reaches the publisher in the background.
    std::vector<std::string> received;
    absl::StatusOr<bool> got = false;
    while (got.ok() && !*got) {
      const std::string_view ready[] = {"ready"};
      REQUIRE(publisher.Send(ready).ok());
      got = subscriber.Receive(&received, absl::Milliseconds(10));
    }
    REQUIRE(got.ok());
    for (const char* topic : {"text/req-10/", "text/req-1/", "text/req-2/"}) {
      const std::string_view frames[] = {topic, "payload"};
      REQUIRE(*publisher.Send(frames));
    }
    do {
      REQUIRE(*subscriber.Receive(&received, kLong));
    } while (received[0] == "ready");
    CHECK(received == std::vector<std::string>{"text/req-1/", "payload"});
    CHECK_FALSE(*subscriber.Receive(&received, absl::ZeroDuration()));
  }

  TEST_CASE("zmq: a full queue and a missing peer are answers, not waits") {
    ZmqContext context = MakeContext();
    ZmqSocket lonely = MakeSocket(&context, ZmqKind::kPush);
    REQUIRE(lonely.Bind("inproc://lonely").ok());
    const std::string_view frames[] = {"x"};
    absl::StatusOr<bool> sent = lonely.Send(frames);
    REQUIRE(sent.ok());
    CHECK_FALSE(*sent);

    ZmqOptions options;
    options.send_queue_messages = 3;
    options.receive_queue_messages = 2;
    ZmqSocket pull = MakeSocket(&context, ZmqKind::kPull, options);
    REQUIRE(pull.Bind("inproc://full").ok());
    ZmqSocket push = MakeSocket(&context, ZmqKind::kPush, options);
    REQUIRE(push.Connect("inproc://full").ok());
    int count = 0;
    while (*push.Send(frames) && count < 1000) ++count;
    CHECK(count == 5);  // inproc: one pipe with both marks together
  }

  TEST_CASE("zmq: shutting the context down ends every wait") {
    ZmqContext context = MakeContext();
    ZmqSocket pull = MakeSocket(&context, ZmqKind::kPull);
    REQUIRE(pull.Bind("inproc://end").ok());
    std::thread ender([&context] { context.Shutdown(); });
    std::vector<std::string> received;
    const absl::StatusOr<bool> got = pull.Receive(&received, absl::InfiniteDuration());
    ender.join();
    CHECK(absl::IsCancelled(got.status()));
    const std::string_view frames[] = {"x"};
    CHECK_FALSE(pull.Send(frames).ok());
  }

  TEST_CASE("zmq: an endpoint that is taken or cannot be is a status") {
    ZmqContext context = MakeContext();
    ZmqSocket first = MakeSocket(&context, ZmqKind::kPull);
    REQUIRE(first.Bind("inproc://taken").ok());
    ZmqSocket second = MakeSocket(&context, ZmqKind::kPull);
    const absl::Status taken = second.Bind("inproc://taken");
    CHECK_FALSE(taken.ok());
    CHECK(taken.message().find("inproc://taken") != absl::string_view::npos);
    // libzmq bounds no stranger.
    for (const char* open : {"ipc://socket", "tcp://127.0.0.1:*"}) {
      CHECK(ErrorCodeOf(second.Bind(open)) == SPECD_ERROR_INVALID_ARGUMENT);
    }
    CHECK_FALSE(second.Connect("smoke://signals").ok());
    CHECK_FALSE(first.Subscribe("topic").ok());  // no subscriber
  }

  TEST_CASE("zmq: endpoints are checked by form") {
    for (const char* good : {"ipc:///run/specd/text.sock", "ipc://text.sock", "tcp://127.0.0.1:1",
                             "tcp://*:*", "tcp://[::1]:65535", "inproc://x"}) {
      CAPTURE(good);
      CHECK(ValidateEndpoint("text", good).ok());
    }
    const std::string long_path = "ipc://" + std::string(108, 'x');
    for (const std::string& bad :
         {std::string(), std::string("ipc://"), std::string("ipc://@abstract"), long_path,
          std::string("tcp://host"), std::string("tcp://:1"), std::string("tcp://host:0"),
          std::string("tcp://host:65536"), std::string("tcp://host:x"), std::string("inproc://"),
          std::string("udp://host:1"), std::string("ipc://a\0b", 9)}) {
      CAPTURE(bad);
      const absl::Status status = ValidateEndpoint("text", bad);
      CHECK(ErrorCodeOf(status) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(ErrorFieldOf(status) == "text");
    }
    CHECK(ValidateEndpoint("text", "ipc://" + std::string(107, 'x')).ok());
  }
}

}  // namespace
}  // namespace specd
