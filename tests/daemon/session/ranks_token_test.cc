// Tokens that an engine brings from another daemon, and ranks that come back with them. The tests
// send the protocol's own messages to a control server, and check whom it takes, whom it refuses,
// and what it tells the engine about its ranks.
#include <doctest/doctest.h>

#include <string>
#include <variant>
#include <vector>

#include "ipc/segment/segment.h"
#include "tests/daemon/server/raw_peer.h"
#include "tests/daemon/session/rank_host.h"
#include "tests/support/eventually.h"

namespace specd {
namespace {

using test::EngineHost;
using test::RankMemory;
using test::RawPeer;

constexpr int32_t kOk = SPECD_OK;
const std::string kSecret = "00112233445566778899aabbccddeeff";
const std::string kOther = "ffeeddccbbaa99887766554433221100";

HelloRequest HelloWith(const std::string& token, bool resumes = true) {
  HelloRequest hello{"zero", "0", 1, {8, 4, 4, 3, 2, 4}};
  hello.resumes = resumes;
  hello.join_token = token;
  return hello;
}

JoinRequest JoinWith(const std::string& token, uint32_t rank = 1, bool rejoins = false) {
  return {"rank", "0", 1, token, rank, true, rejoins};
}

// An engine that has attached, as far as the daemon knows.
struct Attached {
  Attached(const EngineHost& host, const HelloRequest& hello) : peer(host.uri) {
    const Reply reply = peer.Call(hello);
    REQUIRE(std::holds_alternative<HelloReply>(reply));
    session_id = std::get<HelloReply>(reply).session_id;
    std::vector<UniqueFd> fds = peer.TakeFds();
    REQUIRE(fds.size() == 1);
    auto attached = Segment::Attach(std::move(fds[0]));
    REQUIRE(attached.ok());
    segment.emplace(*std::move(attached));
    REQUIRE(std::holds_alternative<OkReply>(peer.Call(MappedRequest{})));
  }

  std::string Token() { return std::get<GroupReply>(peer.Call(GetGroupRequest{})).token; }
  uint64_t BoundOutputs() const { return segment->page()->daemon.bound_outputs.load(); }
  void Be(EngineState state) { segment->page()->engine.state.store(static_cast<uint32_t>(state)); }

  RawPeer peer;
  uint64_t session_id = 0;
  std::optional<Segment> segment;
};

// The session that a join is answered with; 0: the rank is to wait.
uint64_t SessionOf(RawPeer& peer, const JoinRequest& request) {
  const Reply reply = peer.Call(request);
  REQUIRE(std::holds_alternative<JoinReply>(reply));
  return std::get<JoinReply>(reply).session_id;
}

int32_t CodeOf(RawPeer& peer, const Request& request) { return peer.Error(request).code; }

// Binds a slot output of rank 1 to memory that is registered for it.
void BindFirst(RawPeer& peer, const RankMemory& memory, uint32_t role) {
  const int fd = memory.fd.get();
  peer.Send(RegisterRegionRequest{RankMemory::kBytes}, 8, {&fd, 1});
  const Reply region = peer.Receive().second;
  REQUIRE(std::holds_alternative<RegionReply>(region));
  BindTensorRequest bind{.role = role + 1, .region = std::get<RegionReply>(region).region};
  bind.spec.num_rows = test::kRankSlots;
  bind.spec.dtype = SPECD_INT32;
  REQUIRE(CodeOf(peer, bind) == kOk);
}

TEST_SUITE("unit") {
  TEST_CASE("told token: the engine keeps it, and its ranks find the session by it") {
    const EngineHost host;
    Attached first(host, HelloWith(""));
    const std::string made = first.Token();
    CHECK(made.starts_with("1-"));
    // The number of the token is that of a session of another daemon. Here others may have it.
    Attached told(host, HelloWith("1-" + kSecret));
    Attached again(host, HelloWith("1-" + kOther));
    CHECK(told.Token() == "1-" + kSecret);
    CHECK(told.session_id == 2);
    for (auto& [token, session] : std::vector<std::pair<std::string, uint64_t>>{
             {made, 1}, {"1-" + kSecret, 2}, {"1-" + kOther, 3}}) {
      RawPeer rank(host.uri);
      CHECK(SessionOf(rank, JoinWith(token)) == session);
    }
    // A rank that resumes may have the token of an engine that has not come.
    RawPeer stranger(host.uri);
    JoinRequest join = JoinWith("7-" + kSecret);
    CHECK(SessionOf(stranger, join) == 0);
    join.resumes = false;
    CHECK(CodeOf(stranger, join) == SPECD_ERROR_NOT_FOUND);
    // It is told if the number is another's, and chooses how long it tries.
    for (const bool resumes : {false, true}) {
      join = JoinWith("1-" + std::string(32, '0'));
      join.resumes = resumes;
      CHECK(CodeOf(stranger, join) == SPECD_ERROR_PERMISSION);
    }
  }

  TEST_CASE("told token: one that is no token, of no engine from elsewhere, or taken is refused") {
    const EngineHost host;
    RawPeer peer(host.uri);
    const auto refused = [&](const HelloRequest& hello, int32_t code, const char* what) {
      const ErrorReply error = peer.Error(hello);
      CHECK(error.code == code);
      CHECK(error.field == "join_token");
      CHECK(error.text.find(what) != std::string::npos);
      CHECK(error.text.find(kSecret) == std::string::npos);
    };
    for (const std::string bad : {"1", "1-", "1-00", "x-00112233445566778899aabbccddeeff"}) {
      refused(HelloWith(bad), SPECD_ERROR_INVALID_ARGUMENT, "is not of the form of a token");
    }
    refused(HelloWith("1-" + kSecret, false), SPECD_ERROR_INVALID_ARGUMENT, "resumes");
    {
      Attached holder(host, HelloWith("9-" + kSecret));
      refused(HelloWith("9-" + kSecret), SPECD_ERROR_STATE,
              "that of session 1 already, whose engine is \"zero\"");
      CHECK(holder.Token() == "9-" + kSecret);
    }
    // Once that session has ended its token is free.
    CHECK(Eventually(
        [&] { return std::holds_alternative<HelloReply>(peer.Call(HelloWith("9-" + kSecret))); }));
  }

  TEST_CASE(
      "told token: a rank that resumes waits for a session that may come, and only for that") {
    const EngineHost host;
    RawPeer rank(host.uri);
    const std::string token = "4-" + kSecret;
    CHECK(SessionOf(rank, JoinWith(token)) == 0);
    JoinRequest once = JoinWith(token);
    once.resumes = false;
    CHECK(CodeOf(rank, once) == SPECD_ERROR_NOT_FOUND);
    {
      // The engine is still telling this daemon about its sequences, and gives up.
      Attached engine(host, HelloWith(token));
      RawPeer other(host.uri);
      CHECK(SessionOf(other, JoinWith(token)) == 1);
    }
    CHECK(Eventually([&] {
      RawPeer late(host.uri);
      return SessionOf(late, JoinWith(token, 2)) == 0;
    }));
    // One that has run, or says that it does not come any more, does not come back to this daemon.
    const std::string closed = "5-" + std::string(32, '5');
    for (const auto& each : std::vector<std::pair<EngineState, std::string>>{
             {EngineState::kRunning, token}, {EngineState::kClosing, closed}}) {
      const std::string& ended = each.second;
      {
        Attached engine(host, HelloWith(ended));
        engine.Be(each.first);
      }
      CHECK(Eventually([&] {
        RawPeer late(host.uri);
        return CodeOf(late, JoinWith(ended)) == SPECD_ERROR_STATE;
      }));
      CHECK(rank.Error(JoinWith(ended)).text.find("has ended") != std::string::npos);
    }
    CHECK(SessionOf(rank, JoinWith("4-" + kOther)) == 0);  // of another engine, which may come
  }

  TEST_CASE("told token: rank and engine resume both or neither, and announce what exists") {
    const EngineHost host;
    Attached resumes(host, HelloWith("5-" + kSecret));
    Attached ends(host, HelloWith("", false));
    RawPeer rank(host.uri);
    JoinRequest once = JoinWith(resumes.Token());
    once.resumes = false;
    ErrorReply error = rank.Error(once);
    CHECK(error.code == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(error.field == "reconnect_ms");
    CHECK(error.text.find("set for rank 0 but not for rank 1") != std::string::npos);
    error = rank.Error(JoinWith(ends.Token(), 3));
    CHECK(error.code == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(error.field == "reconnect_ms");
    CHECK(error.text.find("set for rank 3 but not for rank 0") != std::string::npos);
    // Once the engine runs, a rank that was bound at another daemon has missed rounds.
    CHECK(SessionOf(rank, JoinWith(resumes.Token(), 1, true)) == 1);
    resumes.Be(EngineState::kRunning);
    RawPeer late(host.uri);
    error = late.Error(JoinWith(resumes.Token(), 2, true));
    CHECK(error.code == SPECD_ERROR_STATE);
    CHECK(error.field == "rejoins");
    CHECK(error.text.find("rank 0 has gone on without rank 2") != std::string::npos);
    CHECK(SessionOf(late, JoinWith(resumes.Token(), 2)) == 1);
  }

  TEST_CASE("told token: the engine sees the slot outputs that each rank has bound") {
    const EngineHost host;
    const std::string token = "5-" + kSecret;
    Attached engine(host, HelloWith(token));
    RankMemory tokens;
    RankMemory counts;
    RawPeer rank(host.uri);
    REQUIRE(SessionOf(rank, JoinWith(token, 1, true)) == 1);
    CHECK(engine.BoundOutputs() == 0);
    // docs/PROTOCOL.md: byte 1 is rank 1's. Counts are bit 2 there, and next tokens bit 0.
    BindFirst(rank, counts, SPECD_NUM_KEPT);
    CHECK(engine.BoundOutputs() == 0x400);
    BindFirst(rank, counts, SPECD_NUM_KEPT);  // the same role again is no second one
    CHECK(engine.BoundOutputs() == 0x400);
    BindFirst(rank, tokens, SPECD_NEXT_TOKEN);
    CHECK(engine.BoundOutputs() == 0x500);
    // A rank that leaves is not awaited.
    CHECK(rank.HangUp());
    CHECK(engine.BoundOutputs() == 0);
    // A rank that is there to the end of the session is.
    RawPeer next(host.uri);
    REQUIRE(SessionOf(next, JoinWith(token)) == 1);
    CHECK(engine.BoundOutputs() == 0);
    BindFirst(next, tokens, SPECD_NEXT_TOKEN);
    CHECK(engine.BoundOutputs() == 0x100);
    CHECK(engine.peer.HangUp());
    CHECK(next.AwaitHangUp());
    CHECK(engine.BoundOutputs() == 0x100);
  }
}

}  // namespace
}  // namespace specd
