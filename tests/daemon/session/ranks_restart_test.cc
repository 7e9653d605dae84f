// Ranks that go on with their engine when daemons follow one another, over the C interface. The
// tests check the memory of each rank after rounds at the next daemon, and calls that come while no
// daemon is there.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/daemon/session/rank_host.h"
#include "tests/support/c_drafts.h"
#include "tests/support/eventually.h"
#include "tests/support/last_error.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

using test::BoundRanks;
using test::EmbeddedEngine;
using test::EngineHost;
using test::MemberPtr;
using test::RankMemory;
using test::TokenOf;
using test::WriteRows;

using Written = std::vector<std::pair<size_t, int32_t>>;

constexpr uint32_t kReconnectMs = 60'000;

// A place where one daemon follows another.
class Place {
 public:
  Place() { Start(); }

  void Stop() { host_.reset(); }
  void Start() {
    test::EngineHostOptions options;
    options.folder = folder_.path();
    options.epoch = ++epoch_;
    host_ = std::make_unique<EngineHost>(options);
    uri = host_->uri;
  }
  void Replace() {
    Stop();
    Start();
  }

  std::string uri;

 private:
  const TemporaryFolder folder_;
  uint64_t epoch_ = 0;
  std::unique_ptr<EngineHost> host_;
};

MemberPtr JoinForLong(const std::string& uri, const std::string& token, uint32_t rank,
                      uint32_t reconnect_ms = kReconnectMs) {
  specd_join_options options;
  specd_join_options_init(&options);
  options.rank = rank;
  options.reconnect_ms = reconnect_ms;
  specd_member* member = nullptr;
  const int code = specd_join(uri.c_str(), token.c_str(), &options, &member);
  INFO(specd_last_error());
  REQUIRE(code == SPECD_OK);
  return MemberPtr(member);
}

// Rank 0 and two other ranks. The second one has two slot outputs.
struct Group {
  explicit Group(const std::string& uri, uint32_t reconnect_ms = kReconnectMs)
      : engine(uri, reconnect_ms) {
    WriteRows(engine);
    token = TokenOf(engine.engine);
    one = JoinForLong(uri, token, 1);
    two = JoinForLong(uri, token, 2);
    REQUIRE(first.BindTo(one) == SPECD_OK);
    REQUIRE(second.BindTo(two, 64) == SPECD_OK);
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.num_rows = test::kRankSlots;
    tensor.dtype = SPECD_INT32;
    REQUIRE(specd_member_bind_fd_tensor(two.get(), SPECD_TOTAL_KEPT, total.fd.get(),
                                        RankMemory::kBytes, &tensor) == SPECD_OK);
    sequence = engine.Open(engine.Params());
    slot = specd_sequence_slot(sequence);
  }
  // A round whose token is row + 1, which all ranks find.
  void Round(uint32_t row) {
    for (RankMemory* memory : {&first, &second, &total}) memory->Fill();
    const auto token_id = static_cast<int32_t>(row + 1);
    CHECK(engine.Sample(sequence, row).tokens[0] == token_id);
    CHECK(first.Written() == Written{{slot, token_id}});
    CHECK(second.Written() == Written{{16 + slot, token_id}});
    CHECK(total.Written() == Written{{slot, ++num_kept}});
  }

  EmbeddedEngine engine;
  std::string token;
  RankMemory first;
  RankMemory second;
  RankMemory total;
  MemberPtr one;
  MemberPtr two;
  specd_sequence sequence = 0;
  size_t slot = 0;
  int32_t num_kept = 0;
};

TEST_SUITE("unit") {
  TEST_CASE("ranks: each finds at the next daemon what rank 0's rounds decide there") {
    Place place;
    Group group(place.uri);
    group.Round(2);
    for (const uint32_t row : {0u, 3u, 1u}) {
      place.Replace();
      group.Round(row);
      group.Round(row + 1 < 4 ? row + 1 : 0);
      CHECK(TokenOf(group.engine.engine) == group.token);
      CHECK(BoundRanks(group.engine.engine) == 0b110);
      CHECK(specd_member_check(group.one.get()) == SPECD_OK);
    }
    // Two daemons in a row that nothing is asked of.
    place.Replace();
    place.Replace();
    group.Round(2);
  }

  TEST_CASE("ranks: what is bound while no daemon is there is bound at the next one") {
    Place place;
    Group group(place.uri);
    group.Round(2);
    place.Stop();
    CHECK(specd_member_check(group.one.get()) == SPECD_OK);
    RankMemory moved;
    std::thread start([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      place.Start();
    });
    std::thread round([&] { CHECK(group.engine.Sample(group.sequence, 3).tokens[0] == 4); });
    REQUIRE(moved.BindTo(group.one) == SPECD_OK);
    start.join();
    round.join();
    group.first.Fill();
    CHECK(group.engine.Sample(group.sequence, 1).tokens[0] == 2);
    CHECK(group.first.Written().empty());
    CHECK(Written{{group.slot, 2}} == moved.Written());
    // It is what the daemon after that binds, too.
    place.Replace();
    CHECK(group.engine.Sample(group.sequence, 0).tokens[0] == 1);
    CHECK(group.first.Written().empty());
    CHECK(Written{{group.slot, 1}} == moved.Written());
  }

  TEST_CASE("ranks: one that leaves while its daemon runs is not awaited at the next") {
    Place place;
    Group group(place.uri);
    CHECK(specd_leave(group.one.release()) == SPECD_OK);
    CHECK(BoundRanks(group.engine.engine) == 0b100);
    place.Replace();
    group.first.Fill();
    CHECK(group.engine.Sample(group.sequence, 1).tokens[0] == 2);
    CHECK(group.first.Written().empty());
    // A rank leaves at once if no daemon is there to write to its memory.
    place.Stop();
    CHECK(specd_leave(group.two.release()) == SPECD_OK);
  }

  TEST_CASE("ranks: one that is awaited in vain is named, and the others are told at once") {
    Place place;
    Group group(place.uri, 500);
    place.Stop();
    CHECK(specd_leave(group.two.release()) == SPECD_OK);
    place.Start();
    specd_group unused;
    CHECK(specd_get_group(group.engine.engine, &unused) == SPECD_ERROR_DISCONNECTED);
    CHECK(
        LastErrorHas("rank 2 has not joined and bound its slot outputs again "
                     "within reconnect_ms = 500"));
    // Its own patience is a minute.
    CHECK(Eventually([&] { return specd_member_check(group.one.get()) != SPECD_OK; }));
    CHECK(specd_member_check(group.one.get()) == SPECD_ERROR_DISCONNECTED);
    CHECK(LastErrorHas("the session that this rank has joined has ended"));
    CHECK(specd_leave(group.one.release()) == SPECD_OK);
  }

  // With the bug the poll ends after reconnect_ms, a minute, with an error.
  TEST_CASE("ranks: while they were awaited, a poll waited longer than it was told") {
    Place place;
    Group group(place.uri);
    place.Stop();
    CHECK(specd_leave(group.two.release()) == SPECD_OK);
    place.Start();
    specd_completion done = SizedCompletion();
    CHECK(specd_poll(group.engine.engine, &done, 50) == SPECD_EMPTY);
  }

  TEST_CASE("ranks: one whose session does not come is told how long it has waited") {
    Place place;
    auto engine = std::make_unique<EmbeddedEngine>(place.uri, 1);
    MemberPtr one = JoinForLong(place.uri, TokenOf(engine->engine), 1, 200);
    place.Replace();
    CHECK(Eventually([&] { return specd_member_check(one.get()) != SPECD_OK; }));
    CHECK(specd_member_check(one.get()) == SPECD_ERROR_DISCONNECTED);
    CHECK(
        LastErrorHas("rank 1 has found no place in its session within "
                     "reconnect_ms = 200"));
    RankMemory memory;
    CHECK(memory.BindTo(one) == SPECD_ERROR_DISCONNECTED);
    CHECK(specd_leave(one.release()) == SPECD_OK);
  }
}

}  // namespace
}  // namespace specd
