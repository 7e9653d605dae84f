// The places of a control server are divided among the users that it serves.
//
// Bugs that this would catch: forty connections of one user that said nothing kept every other user
// from attaching, and one user could take all sessions.
#include "daemon/server/user_places.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/server/control_connection.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/server/gated_server.h"
#include "tests/daemon/server/raw_peer.h"
#include "tests/support/eventually.h"

namespace specd {
namespace {

using test::GatedServer;
using test::RawPeer;

constexpr uint32_t kAda = 1001;
constexpr uint32_t kBen = 1002;
constexpr uint32_t kCyd = 1003;
constexpr uint32_t kStranger = 9999;  // not served
using Peers = std::vector<std::unique_ptr<RawPeer>>;

// Users come one after the other, and each takes one by one until he is refused.
std::vector<size_t> TakeInTurn(size_t num_places, size_t num_users) {
  std::vector<size_t> held(num_users, 0);
  size_t all = 0;
  for (size_t& mine : held) {
    while (IsWithinShare({.of_user = mine + 1, .of_all = all + 1}, num_places)) {
      ++mine;
      ++all;
    }
  }
  return held;
}

HelloRequest Hello() {
  HelloRequest hello;
  hello.limits = SessionFixture::kLimits;
  return hello;
}

// Connections that say nothing.
Peers Silent(GatedServer& server, uint32_t uid, size_t count) {
  Peers peers;
  for (size_t i = 0; i < count; ++i) peers.push_back(server.ConnectAs(uid));
  return peers;
}

// Connections that have not attached, the oldest first.
class Places {
 public:
  struct Held {
    uint32_t uid = 0;
    bool busy = false;
  };

  explicit Places(const std::vector<Held>& all) {
    for (const Held& each : all) {
      connections_.push_back(std::make_unique<ControlConnection>(ControlConnection{
          .socket = *UnixConnection::Connect(server_.uri.substr(5), absl::Seconds(60)),
          .peer = {.uid = each.uid},
          .allowed = true,
          .process = {},
          .service = std::make_unique<ControlService>(ControlHost{}),
          .busy = each.busy}));
    }
  }

  // The index of the connection; -1: none.
  ptrdiff_t WhoGivesWayTo(uint32_t uid) const {
    const ControlConnection* found = FindWhoGivesWay(connections_, {.uid = uid, .allowed = true});
    const auto at = std::find_if(connections_.begin(), connections_.end(),
                                 [found](const auto& each) { return each.get() == found; });
    return at == connections_.end() ? -1 : at - connections_.begin();
  }
  absl::Status CheckDumps(size_t asking, size_t num_places) const {
    return specd::CheckDumps(connections_, *connections_[asking], num_places);
  }

 private:
  const GatedServer server_;
  std::vector<std::unique_ptr<ControlConnection>> connections_;
};

TEST_SUITE("unit") {
  // The lists follow from the rule, by hand: three quarters, then half of what is left each time.
  TEST_CASE("places: one user leaves a quarter, and each later one half of what is left") {
    CHECK(TakeInTurn(16, 5) == std::vector<size_t>{12, 2, 1, 1, 0});
    CHECK(TakeInTurn(64, 4) == std::vector<size_t>{48, 8, 4, 2});
    CHECK(TakeInTurn(4, 3) == std::vector<size_t>{3, 1, 0});
  }

  TEST_CASE("places: a few are not divided") {
    CHECK(TakeInTurn(1, 2) == std::vector<size_t>{1, 0});
    CHECK(TakeInTurn(3, 2) == std::vector<size_t>{3, 0});
  }
}

TEST_SUITE("fault") {
  TEST_CASE("server: silent connections of one user kept every other user out") {
    GatedServer server({kAda, kBen});
    const Peers silent = Silent(server, kAda, 40);
    for (int i = 0; i < 120; ++i) {
      auto peer = server.ConnectAs(kBen);
      const auto session = server.Attach(*peer);
      peer.reset();
      // The place is free before the next one comes.
      REQUIRE(Eventually([&] { return session->ended(); }));
    }
  }

  TEST_CASE("server: silent connections give way to their own user, the oldest first") {
    GatedServer server({kAda});
    const Peers silent = Silent(server, kAda, 40);
    const auto peer = server.ConnectAs(kAda);
    server.Attach(*peer);
    // One place has been needed for each of 41, and there are 20.
    CHECK_FALSE(silent.front()->TrySend(Hello(), 1));
    CHECK(std::holds_alternative<HelloReply>(silent.back()->Call(Hello())));
  }

  // Of twenty places each user has ten at last. The oldest one of the second user is not silent:
  // the server has not looked at it yet.
  TEST_CASE("server: a connection whose hello lies in its socket gave way to newer ones") {
    GatedServer server({kAda, kBen});
    const Peers silent = Silent(server, kAda, 40);
    server.Attach(*server.ConnectAs(kAda));  // the server has seen all that came before
    server.holds_accepts = true;
    const auto early = server.ConnectAs(kBen);
    early->Send(Hello(), 1);
    REQUIRE(Eventually([&] { return server.gate.num_entered() == 1; }));
    const Peers others = Silent(server, kBen, 15);
    server.gate.Open();
    CHECK(std::holds_alternative<HelloReply>(early->Receive().second));
    CHECK(std::holds_alternative<OkReply>(early->Call(MappedRequest{})));
  }

  // The connection with a dump was freed while a thread had its service.
  TEST_CASE("server: a connection with a dump at a thread gave way") {
    const Places places({{kAda, true}});
    CHECK(places.WhoGivesWayTo(kAda) == -1);
    CHECK(places.WhoGivesWayTo(kBen) == -1);
  }

  TEST_CASE("server: a user whose connections wait for dumps took the places of others") {
    const Places places({{kAda, true}, {kBen, false}, {kCyd, false}, {kAda, true}, {kCyd, false}});
    CHECK(places.WhoGivesWayTo(kAda) == 2);
    CHECK(places.WhoGivesWayTo(kBen) == 2);
    CHECK(Places({{kAda, true}, {kBen, false}, {kAda, true}}).WhoGivesWayTo(kAda) == -1);
    CHECK(Places({{kAda, true}, {kBen, false}, {kAda, true}}).WhoGivesWayTo(kCyd) == 1);
    CHECK(Places({{kBen, false}, {kAda, true}, {kAda, false}}).WhoGivesWayTo(kAda) == 2);
  }

  // By the rule of sessions: of four places three, and then as many as stay free.
  TEST_CASE("server: dumps of one user took every place of connections that have not attached") {
    const Places places({{kAda, true}, {kAda, true}, {kAda, true}, {kAda, false}, {kBen, false}});
    const absl::Status status = places.CheckDumps(3, 4);
    CHECK(ErrorCodeOf(status) == SPECD_ERROR_EXHAUSTED);
    CHECK(status.message().find("3 dumps are under way, 3 of them of uid 1001") !=
          std::string::npos);
    CHECK(places.CheckDumps(3, 6).ok());
    CHECK(places.CheckDumps(4, 4).ok());
  }

  TEST_CASE("server: a user's few silent connections do not give way to many of another") {
    GatedServer server({kAda, kBen});
    const auto early = server.ConnectAs(kBen);
    const Peers silent = Silent(server, kAda, 40);
    const auto last = server.ConnectAs(kBen);
    server.Attach(*last);  // the server has seen all that came before
    server.Attach(*early);
  }

  TEST_CASE("server: users whom it does not serve take no place of those that it serves") {
    GatedServer server({kAda});
    const Peers silent = Silent(server, kStranger, 40);
    const auto peer = server.ConnectAs(kAda);
    server.Attach(*peer);
    CHECK(server.ConnectAs(kStranger)->Error(Hello()).code == SPECD_ERROR_PERMISSION);
    // Nor are attached engines ended for them.
    CHECK(std::holds_alternative<StatsReply>(peer->Call(GetStatsRequest{})));
  }

  TEST_CASE("server: one user could take all sessions") {
    GatedServer server({kAda, kBen, kCyd});
    Peers peers;
    for (int i = 0; i < 3; ++i) {
      peers.push_back(server.ConnectAs(kAda));
      server.Attach(*peers.back());
    }
    const ErrorReply refused = server.ConnectAs(kAda)->Error(Hello());
    CHECK(refused.code == SPECD_ERROR_EXHAUSTED);
    CHECK(refused.field == "max_sessions");
    CHECK(refused.text.find("3 of the 4 engines") != std::string::npos);
    CHECK(refused.text.find("3 of them of uid 1001") != std::string::npos);
    const auto other = server.ConnectAs(kBen);
    server.Attach(*other);
    CHECK(server.ConnectAs(kCyd)->Error(Hello()).text.find("as many as --max_sessions") !=
          std::string::npos);
    // The place of an engine that has gone is for a user who has none.
    REQUIRE(peers.back()->HangUp());
    peers.pop_back();
    server.Attach(*server.ConnectAs(kCyd));
  }

  TEST_CASE("server: a user whose engines die in their openings takes no more than his share") {
    GatedServer server({kAda, kBen});
    const UniqueFd ids(memfd_create("ids", MFD_CLOEXEC));
    REQUIRE(write(ids.get(), "1234", 4) == 4);
    OpenSequenceRequest held;
    held.num_prompt_ids = 1;
    held.stop_strings = {"stop"};  // the gate holds it
    for (int i = 0; i < 3; ++i) {
      held.request_id = std::to_string(i);
      auto peer = server.ConnectAs(kAda);
      const auto session = server.Attach(*peer);
      const int fd = ids.get();
      peer->Send(held, 5, {&fd, 1});
      REQUIRE(Eventually([&] { return server.gate.num_entered() == i + 1; }));
      peer.reset();
      REQUIRE(Eventually([&] { return session->ended(); }));
    }
    CHECK(server.ConnectAs(kAda)->Error(Hello()).field == "max_sessions");
    server.Attach(*server.ConnectAs(kBen));
  }

  TEST_CASE("server: a server of one user lets that user take all sessions") {
    GatedServer server;
    Peers peers;
    for (uint32_t i = 0; i < GatedServer::kSessionsMax; ++i) {
      peers.push_back(std::make_unique<RawPeer>(server.uri));
      server.Attach(*peers.back());
    }
    CHECK(RawPeer(server.uri).Error(Hello()).field == "max_sessions");
  }
}

}  // namespace
}  // namespace specd
