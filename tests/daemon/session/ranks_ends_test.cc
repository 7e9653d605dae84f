// The ends of ranks in hard cases: memory that cannot be unregistered, a child of the rank's
// process, and an engine that breaks its rings. A rank is also refused for want of memory.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/segment/segment.h"
#include "tests/daemon/server/raw_peer.h"
#include "tests/daemon/session/rank_host.h"
#include "tests/support/eventually.h"
#include "tests/support/last_error.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

using test::BoundRanks;
using test::Join;
using test::MemberPtr;
using test::RankedHost;
using test::RankMemory;
using test::RawPeer;
using test::TokenOf;

using Written = std::vector<std::pair<size_t, int32_t>>;

// Answers the requests of one connection after another with these replies. It hangs up when a
// request follows the last reply, or none comes.
class ScriptedDaemon {
 public:
  explicit ScriptedDaemon(std::vector<std::vector<Reply>> scripts) {
    auto listener = UnixListener::Bind(folder_.Of("s"), 0660);
    REQUIRE(listener.ok());
    uri = "unix:" + folder_.Of("s");
    thread_ = std::thread(
        [this, listener = *std::move(listener), scripts = std::move(scripts)]() mutable {
          for (const std::vector<Reply>& replies : scripts) Serve(listener, replies);
        });
  }
  ~ScriptedDaemon() {
    if (thread_.joinable()) thread_.join();
  }
  ScriptedDaemon(const ScriptedDaemon&) = delete;
  ScriptedDaemon& operator=(const ScriptedDaemon&) = delete;

  // The regions that the other side has unregistered, once it has gone.
  std::vector<uint32_t> AwaitUnregistered() {
    thread_.join();
    return unregistered_;
  }

  std::string uri;

 private:
  void Serve(UnixListener& listener, const std::vector<Reply>& replies) {
    auto connection = listener.Accept(absl::Seconds(60));
    if (!connection.ok() || !connection->has_value()) return;
    std::vector<uint8_t> buffer(kControlBytesMax);
    std::vector<UniqueFd> fds;
    for (size_t i = 0;; ++i) {
      const auto received = (*connection)->Receive(buffer, &fds, absl::Seconds(60));
      if (!received.ok() || received->result != ReceiveResult::kMessage) return;
      const std::span<const uint8_t> bytes(buffer.data(), received->size_bytes);
      const auto header = DecodeHeader(bytes, ControlReader::kDaemon);
      const auto request = DecodeRequest(*header, bytes);
      if (const auto* unregister = std::get_if<UnregisterRegionRequest>(&*request)) {
        unregistered_.push_back(unregister->region);
      }
      if (i == replies.size()) return;
      const auto reply = EncodeReply(replies[i], header->request_id);
      if (!(*connection)->Send(*reply, {}, absl::Seconds(60)).ok()) return;
    }
  }

  const TemporaryFolder folder_;
  std::vector<uint32_t> unregistered_;  // written by the thread
  std::thread thread_;
};

MemberPtr JoinForLong(const std::string& uri) {
  specd_join_options options;
  specd_join_options_init(&options);
  options.rank = 1;
  options.reconnect_ms = 60000;
  specd_member* member = nullptr;
  REQUIRE(specd_join(uri.c_str(), "1-0", &options, &member) == SPECD_OK);
  return MemberPtr(member);
}

TEST_SUITE("unit") {
  TEST_CASE("ranks: a binding answers for itself, whatever becomes of the memory given back") {
    // A rank that is told that it is not bound would free memory that rounds write.
    const ErrorReply not_closed{SPECD_ERROR_INTERNAL, "region", "the region cannot be closed"};
    const ErrorReply refused{SPECD_ERROR_REGION, "num_rows", "the rows do not fit"};
    ScriptedDaemon daemon(
        {{JoinReply{1, 77, "0", 4}, RegionReply{1}, OkReply{}, RegionReply{2}, OkReply{},
          not_closed, RegionReply{3}, refused, not_closed, RegionReply{4}, OkReply{}}});
    MemberPtr member;
    REQUIRE(Join(daemon.uri, "1-0", 1, &member) == SPECD_OK);
    RankMemory memory;
    CHECK(memory.BindTo(member) == SPECD_OK);
    CHECK(memory.BindTo(member) == SPECD_OK);  // and region 1 cannot be given back
    CHECK(memory.BindTo(member) == SPECD_ERROR_REGION);
    CHECK(LastErrorHas("the rows do not fit"));
    CHECK(memory.BindTo(member) == SPECD_OK);  // and the daemon ends before region 2 is
    CHECK(specd_leave(member.release()) == SPECD_OK);
    CHECK(daemon.AwaitUnregistered() == std::vector<uint32_t>{1, 3, 2});
  }

  TEST_CASE("ranks: a binding that every daemon dies of is given up, and the rank goes on") {
    std::vector<std::vector<Reply>> scripts(5, {JoinReply{1, 77, "0", 4}});
    scripts.push_back({JoinReply{1, 78, "0", 4}, RegionReply{1}, OkReply{}});
    ScriptedDaemon daemon(scripts);
    MemberPtr member = JoinForLong(daemon.uri);
    RankMemory memory;
    CHECK(memory.BindTo(member) == SPECD_ERROR_DISCONNECTED);
    CHECK(LastErrorHas("5 daemons in a row ended before they had bound"));
    CHECK(specd_member_check(member.get()) == SPECD_OK);
    CHECK(memory.BindTo(member) == SPECD_OK);
    CHECK(specd_leave(member.release()) == SPECD_OK);
  }

  TEST_CASE("ranks: the memory is not bound in a session of another user's engine") {
    ScriptedDaemon daemon({{JoinReply{1, 77, "0", 4, 1000}, RegionReply{1}, OkReply{}},
                           {JoinReply{1, 78, "0", 4, 1001}}});
    MemberPtr member = JoinForLong(daemon.uri);
    RankMemory memory;
    CHECK(memory.BindTo(member) == SPECD_OK);
    CHECK(memory.BindTo(member) == SPECD_ERROR_DISCONNECTED);
    CHECK(LastErrorHas("an engine of uid 1001, and was of one of uid 1000"));
    CHECK(specd_leave(member.release()) == SPECD_OK);
  }

  TEST_CASE("ranks: a child of the process does not end the place that is its parent's") {
    RankedHost host;
    const std::string token = TokenOf(host.engine.engine);
    MemberPtr member;
    REQUIRE(Join(host.uri, token, 1, &member) == SPECD_OK);
    RankMemory memory;
    REQUIRE(memory.BindTo(member) == SPECD_OK);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(specd_leave(member.release()) == SPECD_OK ? 0 : 1);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(specd_member_check(member.get()) == SPECD_OK);
    CHECK(BoundRanks(host.engine.engine) == 0b10);
    const specd_sequence sequence = host.engine.Open(host.engine.Params());
    CHECK(host.engine.Sample(sequence, 2).tokens[0] == 3);
    CHECK(memory.Written() == Written{{specd_sequence_slot(sequence), 3}});
    RankMemory other;
    CHECK(other.BindTo(member) == SPECD_OK);
    CHECK(specd_leave(member.release()) == SPECD_OK);
    CHECK(BoundRanks(host.engine.engine) == 0);
  }

  TEST_CASE("ranks: an engine that breaks its rings ends its ranks, and no other engine's") {
    RankedHost good;
    RawPeer bad(good.uri);
    REQUIRE(std::holds_alternative<HelloReply>(
        bad.Call(HelloRequest{"bad", "0", 1, {8, 4, 4, 3, 2, 4}})));
    std::vector<UniqueFd> fds = bad.TakeFds();
    REQUIRE(fds.size() == 1);
    auto segment = Segment::Attach(std::move(fds[0]));
    REQUIRE(segment.ok());
    REQUIRE(std::holds_alternative<OkReply>(bad.Call(MappedRequest{})));
    const Reply group = bad.Call(GetGroupRequest{});
    REQUIRE(std::holds_alternative<GroupReply>(group));
    MemberPtr of_bad;
    MemberPtr of_good;
    RankMemory bad_memory;
    RankMemory good_memory;
    REQUIRE(Join(good.uri, std::get<GroupReply>(group).token, 1, &of_bad) == SPECD_OK);
    REQUIRE(Join(good.uri, TokenOf(good.engine.engine), 1, &of_good) == SPECD_OK);
    REQUIRE(bad_memory.BindTo(of_bad) == SPECD_OK);
    REQUIRE(good_memory.BindTo(of_good) == SPECD_OK);

    // No submission of this ring has that number.
    segment->submission_entries()[0].sequence.store(99);
    Doorbell(&segment->page()->submission_bell).Ring();
    CHECK(Eventually([&] { return specd_member_check(of_bad.get()) != SPECD_OK; }));
    CHECK(specd_member_check(of_bad.get()) == SPECD_ERROR_DISCONNECTED);
    CHECK(LastErrorHas("the session that this rank has joined has ended"));
    CHECK(bad_memory.BindTo(of_bad) == SPECD_ERROR_DISCONNECTED);
    CHECK(specd_leave(of_bad.release()) == SPECD_OK);
    CHECK(Join(good.uri, std::get<GroupReply>(group).token, 1, &of_bad) == SPECD_ERROR_NOT_FOUND);
    CHECK(bad_memory.Written().empty());

    CHECK(specd_member_check(of_good.get()) == SPECD_OK);
    const specd_sequence sequence = good.engine.Open(good.engine.Params());
    CHECK(good.engine.Sample(sequence, 1).tokens[0] == 2);
    CHECK(good_memory.Written() == Written{{specd_sequence_slot(sequence), 2}});
  }
}

}  // namespace
}  // namespace specd
