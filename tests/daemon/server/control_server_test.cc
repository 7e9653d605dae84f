// Long openings of a control server, on threads of their own: other engines are served meanwhile,
// and neither a hang-up nor a shutdown leaves anything of them.
#include "daemon/server/control_server.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "speculative/grammar/base/compile_cancel.h"
#include "tests/daemon/server/gated_server.h"
#include "tests/daemon/server/raw_peer.h"
#include "tests/support/eventually.h"
#include "tests/support/session_fixture.h"

namespace specd {
namespace {

using test::GatedServer;
using test::RawPeer;

OpenSequenceRequest ShortOpening(const std::string& name) {
  OpenSequenceRequest request;
  request.request_id = name;
  return request;
}

OpenSequenceRequest LongOpening(const std::string& name) {
  OpenSequenceRequest request = ShortOpening(name);
  request.num_prompt_ids = 2;
  return request;
}

OpenSequenceRequest HeldOpening(const std::string& name) {
  OpenSequenceRequest request = LongOpening(name);
  request.stop_strings = {"stop"};
  return request;
}

// Sends an opening and the file of its two ids.
void SendLong(RawPeer& peer, const OpenSequenceRequest& request, uint32_t request_id) {
  const int32_t ids[2] = {1, 2};
  const UniqueFd file(memfd_create("lists", MFD_CLOEXEC));
  REQUIRE(write(file.get(), ids, sizeof ids) == sizeof ids);
  const int fd = file.get();
  peer.Send(request, request_id, {&fd, 1});
}

bool IsOpened(const Reply& reply) { return std::holds_alternative<SequenceReply>(reply); }

SequenceHandle HandleOf(const Reply& reply) {
  REQUIRE(IsOpened(reply));
  return std::get<SequenceReply>(reply).sequences.front();
}

TEST_SUITE("unit") {
  // Bug: a daemon that was stopped hung up on the engines that said hello meanwhile.
  TEST_CASE("server: a pause of the daemon does not count against an engine that says hello") {
    GatedServer server;
    RawPeer known(server.uri);
    server.Attach(known);
    RawPeer early(server.uri);
    // The server takes connections in the order in which they came: the third one attaches only
    // after the second is known.
    RawPeer later(server.uri);
    server.Attach(later);
    server.clock().AdvanceNs(3'600'000'000'000);
    CHECK(IsOpened(known.Call(ShortOpening("r"))));  // the server looks
    server.Attach(early);
    // A peer that only waits has its term, in steps in which the server looks.
    RawPeer silent(server.uri);
    RawPeer last(server.uri);
    server.Attach(last);
    for (int i = 1; i <= 6; ++i) {
      server.clock().AdvanceNs(1'000'000'000);
      known.Call(ShortOpening(std::to_string(i)));
    }
    CHECK(silent.AwaitHangUp());
  }

  TEST_CASE("server: while one engine's opening takes long, another attaches and opens") {
    GatedServer server;
    RawPeer slow(server.uri);
    server.Attach(slow);
    SendLong(slow, HeldOpening("slow"), 5);
    REQUIRE(Eventually([&] { return server.gate.num_entered() == 1; }));

    RawPeer other(server.uri);
    server.Attach(other);
    CHECK(IsOpened(other.Call(ShortOpening("short"))));
    SendLong(other, LongOpening("long"), 6);
    CHECK(IsOpened(other.Receive().second));
    server.gate.Open();
    CHECK(IsOpened(slow.Receive().second));
  }

  TEST_CASE("server: two long openings held up the prompts of every other engine") {
    GatedServer server;
    std::vector<std::unique_ptr<RawPeer>> slow;
    for (const char* const name : {"a", "b", "c"}) {
      slow.push_back(std::make_unique<RawPeer>(server.uri));
      server.Attach(*slow.back());
      SendLong(*slow.back(), HeldOpening(name), 5);
    }
    REQUIRE(Eventually([&] { return server.gate.num_entered() == 3; }));
    RawPeer other(server.uri);
    server.Attach(other);
    for (const char* const name : {"d", "e"}) {
      SendLong(other, LongOpening(name), 6);
      CHECK(IsOpened(other.Receive().second));
    }
    CHECK(server.gate.num_left() == 0);
    server.gate.Open();
    for (const auto& peer : slow) {
      const auto [answered, reply] = peer->Receive();
      CHECK(answered == 5);
      CHECK(IsOpened(reply));
    }
  }

  TEST_CASE("server: an opening with a constraint but no list compiled on the control thread") {
    GatedServer server;
    RawPeer slow(server.uri);
    server.Attach(slow);
    OpenSequenceRequest json_object = ShortOpening("json_object");
    json_object.numbers = {{"grammar_kind", 2.0}};
    json_object.stop_strings = {"stop"};
    slow.Send(json_object, 5);
    REQUIRE(Eventually([&] { return server.gate.num_entered() == 1; }));

    // Without a thread of its own, the control thread would be at the gate.
    RawPeer other(server.uri);
    server.Attach(other);
    CHECK(IsOpened(other.Call(ShortOpening("short"))));
    CHECK(server.gate.num_left() == 0);
    server.gate.Open();
    const auto [answered, reply] = slow.Receive();
    CHECK(answered == 5);
    // The fixture's model has no tokenizer.
    REQUIRE(std::holds_alternative<ErrorReply>(reply));
    CHECK(std::get<ErrorReply>(reply).text.find("no tokenizer is there") != std::string::npos);
  }

  TEST_CASE("server: the answers of one engine come in the order of its messages") {
    GatedServer server;
    RawPeer slow(server.uri);
    server.Attach(slow);
    SendLong(slow, HeldOpening("first"), 11);
    slow.Send(ShortOpening("second"), 12);
    SendLong(slow, LongOpening("third"), 13);
    slow.Send(GetStatsRequest{}, 14);
    REQUIRE(Eventually([&] { return server.gate.num_entered() == 1; }));
    // The server has looked at every connection once it has answered this engine.
    RawPeer other(server.uri);
    server.Attach(other);
    CHECK(IsOpened(other.Call(ShortOpening("other"))));

    server.gate.Open();
    for (const uint32_t request_id : {11, 12, 13}) {
      const auto [answered, reply] = slow.Receive();
      CHECK(answered == request_id);
      CHECK(IsOpened(reply));
    }
    CHECK(slow.Receive().first == 14);
  }

  TEST_CASE("server: a file that comes before the hello opens nothing") {
    GatedServer server;
    RawPeer stranger(server.uri);
    SendLong(stranger, HeldOpening("early"), 3);
    const auto [answered, reply] = stranger.Receive();
    CHECK(answered == 3);
    REQUIRE(std::holds_alternative<ErrorReply>(reply));
    CHECK(std::get<ErrorReply>(reply).field == "hello");
    CHECK(server.gate.num_entered() == 0);
  }

  TEST_CASE("server: an engine that hangs up during its opening leaves nothing") {
    // A process that dies closes its socket. The library first sends nothing more, and then waits.
    for (const bool dies : {true, false}) {
      CAPTURE(dies);
      GatedServer server;
      auto slow = std::make_unique<RawPeer>(server.uri);
      const std::shared_ptr<Session> session = server.Attach(*slow);
      SendLong(*slow, HeldOpening("name"), 5);
      REQUIRE(Eventually([&] { return server.gate.num_entered() == 1; }));
      if (dies) {
        slow.reset();
      } else {
        REQUIRE(slow->HangUp());
      }
      REQUIRE(Eventually([&] { return session->ended(); }));
      CHECK(server.gate.num_left() == 0);

      // Another engine has the name while the opening still runs.
      RawPeer other(server.uri);
      server.Attach(other);
      const SequenceHandle handle = HandleOf(other.Call(ShortOpening("name")));
      server.gate.Open();
      // The server lets go of the session when the opening is done.
      REQUIRE(Eventually([&] { return session.use_count() == 1; }));
      CHECK(server.gate.num_left() == 1);
      SequenceHandle announced = 0;
      TokenEvent event;
      CHECK_FALSE(session->PopEvent(&announced, &event));
      CHECK_FALSE(server.names.Claim("name"));
      REQUIRE(std::holds_alternative<OkReply>(other.Call(CloseSequenceRequest{handle})));
      CHECK(server.names.Claim("name"));
    }
  }

  TEST_CASE("server: a name that an ended opening would have taken is free") {
    GatedServer server;
    auto slow = std::make_unique<RawPeer>(server.uri);
    const std::shared_ptr<Session> session = server.Attach(*slow);
    SendLong(*slow, HeldOpening("name"), 5);
    REQUIRE(Eventually([&] { return server.gate.num_entered() == 1; }));
    slow.reset();
    REQUIRE(Eventually([&] { return session->ended(); }));
    server.gate.Open();
    REQUIRE(Eventually([&] { return session.use_count() == 1; }));
    CHECK(server.names.Claim("name"));
  }

  TEST_CASE("server: a shutdown waits for openings that have begun, and they leave nothing") {
    GatedServer server;
    std::vector<std::unique_ptr<RawPeer>> slow;
    std::vector<std::shared_ptr<Session>> sessions;
    for (const char* const name : {"a", "b", "c"}) {
      slow.push_back(std::make_unique<RawPeer>(server.uri));
      sessions.push_back(server.Attach(*slow.back()));
      SendLong(*slow.back(), HeldOpening(name), 5);
    }
    REQUIRE(Eventually([&] { return server.gate.num_entered() == 3; }));
    server.EndRun();
    std::future<void> closed = std::async(std::launch::async, [&server] { server.Close(); });
    const absl::Cleanup open = [&server] { server.gate.Open(); };
    REQUIRE(Eventually([] { return grammar::CompileCancel::IsAsked(); }));
    CHECK(server.gate.num_left() == 0);
    CHECK_FALSE(sessions[0]->ended());
    server.gate.Open();
    closed.get();
    CHECK(server.gate.num_left() == 3);
    for (const auto& session : sessions) CHECK(session->ended());
    for (const char* const name : {"a", "b", "c"}) CHECK(server.names.Claim(name));
  }

  // Bug: only sequences that were open kept the daemon.
  TEST_CASE("server: a drain waits for the answer to an opening that has begun") {
    GatedServer server;
    RawPeer slow(server.uri);
    server.Attach(slow);
    SendLong(slow, HeldOpening("slow"), 5);
    REQUIRE(Eventually([&] { return server.gate.num_entered() == 1; }));
    for (int i = 0; i < 2; ++i) {  // the second finds a daemon that could have ended
      CHECK(std::holds_alternative<DrainReply>(RawPeer(server.uri).Call(DrainRequest{})));
    }
    server.gate.Open();
    CHECK(IsOpened(slow.Receive().second));
  }

  TEST_CASE("server: a shutdown waited for compiles to end") {
    GatedServer server;
    server.is_compile = true;
    RawPeer slow(server.uri);
    const std::shared_ptr<Session> session = server.Attach(slow);
    SendLong(slow, HeldOpening("a"), 5);
    REQUIRE(Eventually([&] { return server.gate.num_entered() == 1; }));
    server.EndRun();
    server.Close();  // the gate stays closed
    CHECK(server.gate.num_left() == 1);
    CHECK(session->ended());
    CHECK(server.names.Claim("a"));
    CHECK(!grammar::CompileCancel::IsAsked());
  }
}

}  // namespace
}  // namespace specd
