// Engines that send and read no reply: the control server waits for none of them, and none of their
// replies is lost.
//
// Bug that this would catch: the server waited up to 100 ms for such an engine, and then ended its
// session. Forty of them left 31 of 640 openings a second to every other engine.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "tests/daemon/server/gated_server.h"
#include "tests/daemon/server/raw_peer.h"
#include "tests/support/eventually.h"

namespace specd {
namespace {

using test::GatedServer;
using test::RawPeer;

// Two engines. The greedy one sends and reads nothing.
struct TwoEngines {
  TwoEngines() : greedy(std::make_unique<RawPeer>(server.uri)), other(server.uri) {
    session = server.Attach(*greedy);
    server.Attach(other);
    REQUIRE(write(ids.get(), "12345678", 8) == 8);
  }

  // Every message at a multiple of `step` is an opening with a prompt, which a thread of its own
  // handles.
  bool TrySend(uint32_t request_id) {
    if (step == 0 || request_id % step != 0) return greedy->TrySend(GetStatsRequest{}, request_id);
    OpenSequenceRequest opening;
    opening.request_id = "greedy";
    opening.num_prompt_ids = 2;
    const int fd = ids.get();
    return greedy->TrySend(opening, request_id, {&fd, 1});
  }
  bool OtherIsServed() { return std::holds_alternative<StatsReply>(other.Call(GetStatsRequest{})); }

  // Sends until the server takes no more, and returns the last id. Between two calls of the other
  // engine the server has looked at both, but a thread may be at work on an opening.
  uint32_t SendAll() {
    uint32_t sent = 0;
    for (int refused = 0; refused < (step == 0 ? 3 : 1000);) {
      refused = TrySend(sent + 1) ? 0 : refused + 1;
      if (refused == 0) {
        ++sent;
      } else {
        REQUIRE(OtherIsServed());
      }
    }
    return sent;
  }

  uint32_t step = 0;
  GatedServer server;
  const UniqueFd ids{memfd_create("ids", MFD_CLOEXEC)};
  std::unique_ptr<RawPeer> greedy;
  std::shared_ptr<Session> session;
  RawPeer other;
};

TEST_SUITE("fault") {
  TEST_CASE("server: an engine that reads no reply made the control thread wait, and was ended") {
    for (const uint32_t step : {0, 4}) {
      CAPTURE(step);
      TwoEngines f;
      f.step = step;
      const uint32_t sent = f.SendAll();
      CHECK_FALSE(f.session->ended());
      for (uint32_t request_id = 1; request_id <= sent; ++request_id) {
        const auto [answered, reply] = f.greedy->Receive();
        REQUIRE(answered == request_id);
        const bool is_opening = step != 0 && request_id % step == 0;
        REQUIRE(std::holds_alternative<StatsReply>(reply) != is_opening);
      }
      CHECK(std::holds_alternative<StatsReply>(f.greedy->Call(GetStatsRequest{})));
    }
  }

  TEST_CASE("server: an engine that hangs up with a reply that waits is gone at once") {
    TwoEngines f;
    f.SendAll();
    f.greedy.reset();
    CHECK(Eventually([&] { return f.session->ended(); }));
    CHECK(f.OtherIsServed());
  }

  TEST_CASE("server: a shutdown does not wait for a reply that nobody reads") {
    TwoEngines f;
    f.SendAll();
    f.server.EndRun();
    f.server.Close();
    CHECK(f.session->ended());
  }
}

}  // namespace
}  // namespace specd
