// Refusals of joins, and of requests that a joined rank may not make. Each is refused by field, and
// disturbs no other process.
#include <doctest/doctest.h>

#include <string>
#include <variant>
#include <vector>

#include "daemon/session/join_token.h"
#include "tests/daemon/server/raw_peer.h"
#include "tests/daemon/session/rank_host.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::Join;
using test::MemberPtr;
using test::RankedHost;
using test::RankMemory;
using test::RawPeer;
using test::TokenOf;

bool LastErrorBegins(const std::string& field) {
  INFO(specd_last_error());
  return std::string(specd_last_error()).starts_with(field);
}

TEST_SUITE("unit") {
  TEST_CASE("ranks: a token has one form, and its secret all its digits") {
    const std::string secret = "00112233445566778899aabbccddeeff";
    const auto good = ParseJoinToken("1f-" + secret);
    REQUIRE(good.has_value());
    CHECK(good->session_id == 31);
    CHECK(good->secret == secret);
    CHECK(good->text() == "1f-" + secret);
    CHECK(ParseJoinToken("ffffffffffffffff-" + secret)->session_id == ~uint64_t{0});
    const std::vector<std::string> bads = {"",
                                           "-",
                                           secret,
                                           "-" + secret,
                                           "1f" + secret,
                                           "1f-",
                                           "1f-" + secret + "0",
                                           "1f-" + secret.substr(1),
                                           "1F-" + secret,
                                           "0x1-" + secret,
                                           "+1-" + secret,
                                           "10000000000000000-" + secret,
                                           "1f-" + secret.substr(1) + "g",
                                           "1f-" + secret.substr(1) + "F",
                                           "1f--" + secret.substr(1),
                                           " 1f-" + secret,
                                           "1f-" + secret + "\n"};
    for (const std::string& bad : bads) {
      CAPTURE(bad);
      CHECK_FALSE(ParseJoinToken(bad).has_value());
    }
    CHECK(IsSecret(secret, secret));
    for (size_t i = 0; i < secret.size(); ++i) {
      std::string other = secret;
      other[i] = other[i] == '0' ? '1' : '0';
      CHECK_FALSE(IsSecret(secret, other));
    }
    CHECK_FALSE(IsSecret(secret, secret.substr(1)));
    CHECK_FALSE(IsSecret("", ""));  // no token was ever asked for
    const auto made = MakeJoinSecret();
    REQUIRE(made.ok());
    CHECK(ParseJoinToken("1-" + *made).has_value());
    CHECK(*MakeJoinSecret() != *made);
  }

  TEST_CASE("ranks: who has no token of the session, or no place in it, is refused by name") {
    RankedHost host;
    EmbeddedEngine& engine = host.engine;
    MemberPtr member;
    // No token of this session was asked for, so none is right.
    CHECK(Join(host.uri, "1-" + std::string(32, '0'), 1, &member) == SPECD_ERROR_PERMISSION);
    const std::string token = TokenOf(engine.engine);
    const std::string secret = token.substr(token.find('-') + 1);
    const auto refused = [&](const std::string& with, uint32_t rank, int code, const char* field) {
      CAPTURE(rank);
      CHECK(Join(host.uri, with, rank, &member) == code);
      CHECK(LastErrorBegins(field));
      CHECK_FALSE(LastErrorHas(secret.substr(0, 16).c_str()));
      CHECK_FALSE(LastErrorHas(secret.substr(16).c_str()));
    };
    std::string wrong = token;
    wrong.back() = wrong.back() == '0' ? '1' : '0';
    refused(wrong, 1, SPECD_ERROR_PERMISSION, "token is not that of session 1");
    refused("2-" + secret, 1, SPECD_ERROR_NOT_FOUND, "token is of session 2");
    refused(secret, 1, SPECD_ERROR_INVALID_ARGUMENT, "token has 32 bytes");
    refused("", 1, SPECD_ERROR_INVALID_ARGUMENT, "token has 0 bytes");
    refused(token + std::string(64, '0'), 1, SPECD_ERROR_INVALID_ARGUMENT, "token");
    for (const uint32_t rank : {0u, 8u, ~0u}) {
      refused(token, rank, SPECD_ERROR_INVALID_ARGUMENT, "rank");
      CHECK(LastErrorHas("1 .. 7"));
    }
    // A wrong token learns nothing about the ranks.
    refused(wrong, 8, SPECD_ERROR_PERMISSION, "token");
    REQUIRE(Join(host.uri, token, 1, &member) == SPECD_OK);
    RankMemory memory;
    REQUIRE(memory.BindTo(member) == SPECD_OK);
    MemberPtr other;
    CHECK(Join(host.uri, token, 1, &other) == SPECD_ERROR_STATE);
    // No process was disturbed.
    const specd_sequence sequence = engine.Open(engine.Params());
    CHECK(engine.Sample(sequence, 1).tokens[0] == 2);
    CHECK(memory.Written().size() == 1);
  }

  TEST_CASE("ranks: a wrong option, and a mode that no process can join, say what to do instead") {
    specd_join_options options;
    specd_join_options_init(&options);
    specd_member* member = nullptr;
    const auto join = [&](const char* uri) { return specd_join(uri, "1-0", &options, &member); };
    for (const char* uri : {"embedded:cpu", "embedded:cuda", "nonsense", ""}) {
      CHECK(join(uri) == SPECD_ERROR_UNSUPPORTED);
      CHECK(LastErrorBegins("uri"));
      CHECK(LastErrorHas("SPECD_NEXT_TOKEN"));
    }
    CHECK(join("unix:/nowhere/at/all") == SPECD_ERROR_NOT_FOUND);
    for (const uint32_t timeout_ms : {0u, 3'600'001u}) {
      options.timeout_ms = timeout_ms;
      CHECK(join("unix:/nowhere") == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorBegins("timeout_ms"));
    }
    specd_join_options_init(&options);
    options.reconnect_ms = 3'600'001;
    CHECK(join("unix:/nowhere") == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorBegins("reconnect_ms = 3600001"));
    // With reconnect_ms a daemon that is not there is waited for, and the error says how long.
    options.reconnect_ms = 30;
    CHECK(join("unix:/nowhere/at/all") == SPECD_ERROR_NOT_FOUND);
    CHECK(
        LastErrorHas("rank 0 has found no place in its session within "
                     "reconnect_ms = 30"));
    options.struct_size = 0;
    CHECK(join("unix:/nowhere") == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorBegins("struct_size"));
    specd_join_options_init(&options);
    CHECK(specd_join(nullptr, "", &options, &member) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_join("", nullptr, &options, &member) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_join("", "", nullptr, &member) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_join("", "", &options, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_member_bind_device(nullptr, 1, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_member_bind_fd(nullptr, 1, 1, 0, 1) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_member_check(nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_leave(nullptr) == SPECD_OK);
    specd_group group;
    CHECK(specd_get_group(nullptr, &group) == SPECD_ERROR_INVALID_ARGUMENT);
    const EmbeddedEngine embedded;
    CHECK(specd_get_group(embedded.engine, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_get_group(embedded.engine, &group) == SPECD_ERROR_UNSUPPORTED);
    CHECK(LastErrorHas("attach to a daemon"));
  }

  TEST_CASE("ranks: memory that cannot be bound is refused by field, and what was bound stays") {
    RankedHost host;
    EmbeddedEngine& engine = host.engine;
    MemberPtr member;
    REQUIRE(Join(host.uri, TokenOf(engine.engine), 1, &member) == SPECD_OK);
    RankMemory bound;
    REQUIRE(bound.BindTo(member) == SPECD_OK);
    RankMemory other;
    const auto refused = [&](uint64_t offset_bytes, uint64_t num_rows, const char* what) {
      CHECK(other.BindTo(member, offset_bytes, num_rows) < 0);
      CHECK(LastErrorHas(what));
    };
    // Tries more often than a rank may have regions: a refused binding keeps none.
    for (int time = 0; time < 20; ++time) {
      refused(0, 3, "num_rows = 3 is below max_sequences = 4");
      refused(0, 1025, "num_rows = 1025");
      refused(4084, 4, "offset_bytes = 4084, num_rows = 4");
      refused(4096, 4, "offset_bytes = 4096");
      refused(2, 4, "offset_bytes = 2 is no multiple of 4");
      REQUIRE(bound.BindTo(member) == SPECD_OK);
    }
    CHECK(specd_member_bind_fd(member.get(), -1, 4096, 0, 4) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorBegins("fd"));
    CHECK(specd_member_bind_fd(member.get(), other.fd.get(), 8192, 0, 4) == SPECD_ERROR_REGION);
    RankMemory unsealed(0);
    CHECK(unsealed.BindTo(member) == SPECD_ERROR_REGION);
    RankMemory read_only(F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
    CHECK(read_only.BindTo(member) == SPECD_ERROR_REGION);
    // A number of rows that no memory has, by the same code for both kinds of it.
    for (const uint64_t num_rows : {uint64_t{0}, uint64_t{1} << 31, ~uint64_t{0}}) {
      CHECK(specd_member_bind_device(member.get(), 16, num_rows) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorBegins("num_rows"));
      CHECK(other.BindTo(member, 0, num_rows) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorBegins("num_rows"));
    }
    const specd_sequence sequence = engine.Open(engine.Params());
    CHECK(engine.Sample(sequence, 2).tokens[0] == 3);
    CHECK(bound.Written().size() == 1);
    CHECK(other.Written().empty());
    CHECK(specd_member_check(member.get()) == SPECD_OK);
  }

  TEST_CASE("ranks: a connection is an engine's or a rank's, and a rank's asks for its own only") {
    RankedHost host;
    EmbeddedEngine& engine = host.engine;
    RawPeer raw(host.uri);
    CHECK(raw.Error(GetGroupRequest{}).code == SPECD_ERROR_STATE);
    CHECK(raw.Error(BindTensorRequest{}).field == "hello");
    const JoinRequest join{"raw", "0", 1, TokenOf(engine.engine), 3};
    const Reply joined = raw.Call(join);
    REQUIRE(std::holds_alternative<JoinReply>(joined));
    CHECK(std::get<JoinReply>(joined).session_id == 1);
    CHECK(std::get<JoinReply>(joined).daemon_epoch == 77);
    CHECK(std::get<JoinReply>(joined).max_sequences == 4);
    CHECK(raw.Error(join).field == "hello");
    CHECK(raw.Error(HelloRequest{}).field == "hello");
    for (const Request& request : std::vector<Request>{
             MappedRequest{}, OpenSequenceRequest{}, CloseSequenceRequest{}, AbortSequenceRequest{},
             ForkSequenceRequest{}, GetStatsRequest{}, GetGroupRequest{}}) {
      const ErrorReply error = raw.Error(request);
      CHECK(error.code == SPECD_ERROR_STATE);
      CHECK(error.field == "type");
      CHECK(error.text.find("rank 3") != std::string::npos);
    }
    // Target rows, rank 0's, another rank's, and no role at all.
    for (const uint32_t role : {1u, 4u, 6u, 8u, 16u, 99u}) {
      const ErrorReply error = raw.Error(BindTensorRequest{.role = role, .region = 1});
      CHECK(error.code == SPECD_ERROR_PERMISSION);
      CHECK(error.field == "role");
    }
    // The engine's regions are not this rank's.
    CHECK(raw.Error(BindTensorRequest{.role = 7, .region = 1}).code == SPECD_ERROR_NOT_FOUND);
    CHECK(raw.Error(UnregisterRegionRequest{1}).code == SPECD_ERROR_NOT_FOUND);
    CHECK(raw.Error(UnregisterRegionRequest{0}).code == SPECD_ERROR_NOT_FOUND);
    CHECK(engine.Bind(SPECD_TARGET_ROWS, 1) == SPECD_OK);
    // An engine's connection joins nothing.
    RawPeer second(host.uri);
    REQUIRE(std::holds_alternative<HelloReply>(
        second.Call(HelloRequest{"e", "0", 1, {8, 4, 4, 3, 2, 4}})));
    CHECK(second.Error(join).field == "hello");
  }
}

}  // namespace
}  // namespace specd
