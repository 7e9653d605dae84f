// Ranks that join an attached engine's session, over the C interface. The tests check the memory
// that rounds write to, and the ends of session, rank and daemon. A free place may be taken again.
#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/daemon/session/rank_host.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::BoundRanks;
using test::EmbeddedEngine;
using test::EngineHost;
using test::Join;
using test::MemberPtr;
using test::RankedHost;
using test::RankMemory;
using test::TokenOf;
using test::WriteRows;

using Written = std::vector<std::pair<size_t, int32_t>>;

TEST_SUITE("unit") {
  TEST_CASE("ranks: a place is free again when its process has gone, and is the engine's to bind") {
    RankedHost host;
    EmbeddedEngine& engine = host.engine;
    const std::string token = TokenOf(engine.engine);
    const specd_sequence sequence = engine.Open(engine.Params());
    for (int time = 0; time < 3; ++time) {
      MemberPtr member;
      MemberPtr other;
      REQUIRE(Join(host.uri, token, 2, &member) == SPECD_OK);
      CHECK(Join(host.uri, token, 2, &other) == SPECD_ERROR_STATE);
      CHECK(LastErrorHas("rank = 2 of session"));
      CHECK(engine.Bind(SPECD_NEXT_TOKEN + 2, 1) == SPECD_ERROR_STATE);
      CHECK(LastErrorHas("role = 6 is that of rank 2"));
      RankMemory memory;
      REQUIRE(memory.BindTo(member) == SPECD_OK);
      CHECK(engine.Sample(sequence, 3).tokens[0] == 4);
      CHECK(memory.Written() == Written{{specd_sequence_slot(sequence), 4}});
    }
    // The engine binds the role itself, so the place is taken.
    CHECK(engine.Bind(SPECD_NEXT_TOKEN + 2, 1) == SPECD_OK);
    CHECK(BoundRanks(engine.engine) == 0b100);
    MemberPtr late;
    CHECK(Join(host.uri, token, 2, &late) == SPECD_ERROR_STATE);
    CHECK(LastErrorHas("SPECD_NEXT_TOKEN + 2"));
    CHECK(Join(host.uri, token, 3, &late) == SPECD_OK);
  }

  TEST_CASE("ranks: two engines of one daemon have ranks of their own") {
    const EngineHost host;
    EmbeddedEngine first(host.uri);
    EmbeddedEngine second(host.uri);
    WriteRows(first);
    WriteRows(second);
    const std::string tokens[] = {TokenOf(first.engine), TokenOf(second.engine)};
    CHECK(tokens[0].substr(tokens[0].find('-')) != tokens[1].substr(tokens[1].find('-')));
    MemberPtr members[2];
    RankMemory memory[2];
    for (int i = 0; i < 2; ++i) {
      REQUIRE(Join(host.uri, tokens[i], 1, &members[i]) == SPECD_OK);
      REQUIRE(memory[i].BindTo(members[i]) == SPECD_OK);
    }
    const specd_sequence a = first.Open(first.Params(), "a");
    CHECK(first.Sample(a, 2).tokens[0] == 3);
    CHECK(memory[0].Written() == Written{{specd_sequence_slot(a), 3}});
    CHECK(memory[1].Written().empty());
    const specd_sequence b = second.Open(second.Params(), "b");
    CHECK(second.Sample(b, 1).tokens[0] == 2);
    CHECK(memory[0].Written() == Written{{specd_sequence_slot(a), 3}});
    CHECK(memory[1].Written() == Written{{specd_sequence_slot(b), 2}});
  }

  TEST_CASE("ranks: the end of the session is told at the next call, and its token opens nothing") {
    const EngineHost host;
    MemberPtr member;
    MemberPtr late;
    RankMemory memory;
    std::string token;
    {
      EmbeddedEngine engine(host.uri);
      token = TokenOf(engine.engine);
      REQUIRE(Join(host.uri, token, 1, &member) == SPECD_OK);
      REQUIRE(memory.BindTo(member) == SPECD_OK);
      CHECK(specd_member_check(member.get()) == SPECD_OK);
    }
    // The hang-up is noticed by the control thread; a test that waits in vain hangs.
    while (specd_member_check(member.get()) == SPECD_OK) std::this_thread::yield();
    CHECK(specd_member_check(member.get()) == SPECD_ERROR_DISCONNECTED);
    CHECK(LastErrorHas("has ended"));
    CHECK(memory.BindTo(member) == SPECD_ERROR_DISCONNECTED);
    CHECK(LastErrorHas("token"));
    CHECK(specd_leave(member.release()) == SPECD_OK);
    CHECK(Join(host.uri, token, 1, &late) == SPECD_ERROR_STATE);
    CHECK(LastErrorHas("token is of a session that has ended"));
    const EmbeddedEngine next(host.uri);
    CHECK(Join(host.uri, token, 1, &late) == SPECD_ERROR_STATE);
    CHECK(Join(host.uri, TokenOf(next.engine), 1, &late) == SPECD_OK);
  }
}

}  // namespace
}  // namespace specd
