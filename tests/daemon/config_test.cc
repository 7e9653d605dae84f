#include "daemon/config.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/session/compile_limits.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("listen must be unix: with an absolute path") {
    std::string path;
    CHECK(ParseListen("unix:/run/specd/specd.sock", &path).ok());
    CHECK(path == "/run/specd/specd.sock");
    CHECK(Mentions(ParseListen("tcp://127.0.0.1:5", &path), "unix:/path"));
    CHECK(Mentions(ParseListen("unix:", &path), "unix:/path"));
    CHECK(Mentions(ParseListen("unix:specd.sock", &path), "absolute"));
  }

  // Each of these was a system error without a remedy.
  TEST_CASE("a path where no socket can be made is refused with the remedy") {
    const std::string folder = std::filesystem::temp_directory_path().string();
    CHECK(Mentions(CheckListenPath(folder), ("unix:" + folder + "/specd.sock").c_str()));
    CHECK(Mentions(CheckListenPath(folder + "/"), ("unix:" + folder + "/specd.sock").c_str()));
    CHECK(Mentions(CheckListenPath("/no/such/folder/s"), "mkdir -p /no/such/folder"));
    // sockaddr_un has room for 108 bytes. The last one is zero.
    const std::string longest = folder + "/" + std::string(107 - folder.size() - 1, 'x');
    CHECK(CheckListenPath(longest).ok());
    CHECK(Mentions(CheckListenPath(longest + "x"), "108 bytes"));
  }

  TEST_CASE("an unknown detokenizer mode is refused with the known ones") {
    DetokenizerMode mode = DetokenizerMode::kThread;
    CHECK(ParseDetokenizerMode("process", &mode).ok());
    CHECK(mode == DetokenizerMode::kProcess);
    CHECK(Mentions(ParseDetokenizerMode("both", &mode), "thread, process or off"));
  }

  TEST_CASE("EOS ids are numbers; a token's text has a flag of its own") {
    std::vector<TokenId> ids;
    CHECK(ParseEosIds({"2", "151643"}, &ids).ok());
    CHECK(ids == std::vector<TokenId>{2, 151643});
    CHECK(Mentions(ParseEosIds({"<|im_end|>"}, &ids), "--eos_tokens"));
    CHECK(Mentions(ParseEosIds({"4294967296"}, &ids), "4294967296 is no number"));
  }

  TEST_CASE("endpoints lie beside the socket unless they were given") {
    DaemonConfig config;
    config.listen_path = "/run/specd/specd.sock";
    config.text_endpoint = "tcp://127.0.0.1:5555";
    FillEndpoints(&config);
    CHECK(config.tokens_endpoint == "ipc:///run/specd/specd.sock.tokens");
    CHECK(config.text_endpoint == "tcp://127.0.0.1:5555");
    CHECK(config.aborts_endpoint == "ipc:///run/specd/specd.sock.aborts");
  }

  TEST_CASE("a shard has a number below that of the shards, and endpoints of its own") {
    DaemonConfig config;
    config.listen_path = "/s";
    TextShard& shard = config.text_shard;
    CHECK(Mentions(ParseShard("1", &shard), "shard = 1 is not I/N"));
    CHECK(Mentions(ParseShard("-1/2", &shard), "shard = -1/2 is not I/N"));
    CHECK(Mentions(ParseShard("0/0", &shard), "0 shards are outside 1 .. 64"));
    CHECK(Mentions(ParseShard("0/65", &shard), "65 shards are outside 1 .. 64"));
    CHECK(Mentions(ParseShard("2/2", &shard), "2 is outside 0 .. 1"));
    CHECK(shard.count == 1);
    CHECK(ParseShard("3/4", &shard).ok());
    CHECK(shard.index == 3);
    CHECK(shard.count == 4);
    FillEndpoints(&config);
    CHECK(config.text_endpoint == "ipc:///s.3.text");
    CHECK(config.text_ask_endpoint == "ipc:///s.3.text_ask");
    CHECK(config.ask_endpoint == "ipc:///s.ask");
  }

  TEST_CASE("endpoints must be addresses that can be told to others") {
    DaemonConfig config;
    const std::string folder = std::filesystem::temp_directory_path().string();
    config.listen_path = folder + "/specd.sock";
    FillEndpoints(&config);
    CHECK(CheckEndpoints(config).ok());
    config.tokens_endpoint = "ipc://" + folder;
    CHECK(
        Mentions(CheckEndpoints(config), "tokens = ipc://" + folder + ": the path is a directory"));
    CHECK(Mentions(CheckEndpoints(config), "ipc://" + folder + "/specd.sock"));
    config.tokens_endpoint = "ipc:///nonexistent/tokens";
    CHECK(Mentions(CheckEndpoints(config), "there is no directory /nonexistent; make it"));
    config.tokens_endpoint = "ipc://tokens";
    CHECK(CheckEndpoints(config).ok());
    config.text_endpoint = "tcp://127.0.0.1:*";
    CHECK(Mentions(CheckEndpoints(config), "text = tcp://127.0.0.1:*"));
    config.text_endpoint = "ipc://" + std::string(300, 'x');
    CHECK(!CheckEndpoints(config).ok());
    config.text_endpoint = "carrier pigeon";
    CHECK(Mentions(CheckEndpoints(config), "text"));
  }

  TEST_CASE("threads have a range, and 0 is at least one") {
    DaemonConfig config;
    CHECK_FALSE(SetThreads(-1, &config).ok());
    CHECK_FALSE(SetThreads(17, &config).ok());
    CHECK(config.threads == 1);
    CHECK(SetThreads(16, &config).ok());
    CHECK(config.threads == 16);
    CHECK(SetThreads(0, &config).ok());
    CHECK(config.threads >= 1);
    CHECK(config.threads <= 16);
  }

  TEST_CASE("spin and sessions have ranges") {
    DaemonConfig config;
    CHECK(SetSpin(250, 3, &config).ok());
    CHECK(config.spin_ns == 250'000);
    CHECK(config.max_sessions == 3);
    CHECK(Mentions(SetSpin(-2, 3, &config), "spin_us"));
    CHECK(Mentions(SetSpin(0, 0, &config), "1 .. 64"));
    CHECK(Mentions(SetSpin(0, 65, &config), "max_sessions = 65"));
  }

  TEST_CASE("memory is divided between constraints, compiles, subscribers and sessions") {
    constexpr uint64_t kMib = uint64_t{1} << 20;
    DaemonConfig config;
    // 400 MiB are left: 300 are taken, 75 of them for constraints, 37.5 for two compiles and as
    // much for the subscribers of both endpoints, 18.75 for what these may ask for, and a session
    // has half the rest.
    REQUIRE(SetMemory({}, {.bytes = 400 * kMib, .bound_by = "a test"}, &config).ok());
    CHECK(config.memory.constraints_bytes == 75 * kMib);
    CHECK(config.memory.endpoint_bytes == 75 * kMib / 4);
    CHECK(config.compile_limits.bytes == 75 * kMib / 4);
    CHECK(config.memory.kept_bytes == 75 * kMib / 8);
    CHECK(config.memory.sessions_bytes == 525 * kMib / 4);
    CHECK(config.memory.session_bytes == 525 * kMib / 8);
    // Constraints, compiles and subscribers never have more than their own bounds.
    REQUIRE(SetMemory({.memory_mib = 64 << 10}, {}, &config).ok());
    CHECK(config.memory.constraints_bytes == 2048 * kMib);
    CHECK(config.memory.endpoint_bytes == 256 * kMib);
    CHECK(config.compile_limits.bytes == 256 * kMib);
    CHECK(config.memory.sessions_bytes == 62 * 1024 * kMib - 2 * 512 * kMib - 128 * kMib);
    const auto set = [&config](int64_t memory_mib, int64_t session_memory_mib) {
      return SetMemory({.memory_mib = memory_mib, .session_memory_mib = session_memory_mib}, {},
                       &config);
    };
    REQUIRE(set(104, 45).ok());
    CHECK(config.memory.session_bytes == 45 * kMib);
    CHECK(Mentions(set(104, 46), "session_memory_mib = 46"));
    CHECK(Mentions(set(-1, 0), "memory_mib = -1"));
    CHECK(Mentions(set(0, -1), "session_memory_mib = -1"));
    // Where nothing is known, a bound exists all the same.
    REQUIRE(SetMemory({}, {}, &config).ok());
    CHECK(config.memory.sessions_bytes > 0);
  }

  TEST_CASE("the terms of streams are seconds, and have ranges") {
    DaemonConfig config;
    CHECK(config.keep_ended_ns == 60'000'000'000);
    CHECK(config.text_grace_ns == 30'000'000'000);
    REQUIRE(SetPatience(0, 86'400, &config).ok());
    CHECK(config.keep_ended_ns == 0);
    CHECK(config.text_grace_ns == 86'400'000'000'000);
    CHECK(Mentions(SetPatience(-1, 0, &config), "keep_ended = -1"));
    CHECK(Mentions(SetPatience(0, 86'401, &config), "text_grace = 86401"));
    CHECK(Mentions(SetPatience(0, 2, &config), "text_grace = 2 is outside 3 .. 86400 seconds"));
  }

  TEST_CASE("the canary runs every ten seconds, another number of them, or never") {
    DaemonConfig config;
    CHECK(config.canary_ns == 10'000'000'000);
    REQUIRE(SetCanary(0, &config).ok());
    CHECK(config.canary_ns == 0);
    REQUIRE(SetCanary(3600, &config).ok());
    CHECK(config.canary_ns == 3'600'000'000'000);
    CHECK(Mentions(SetCanary(-1, &config), "canary = -1 is outside 0 .. 3600 seconds"));
    CHECK(Mentions(SetCanary(3601, &config), "canary = 3601"));
  }

  TEST_CASE("the compile of a constraint has limits, and these have ranges") {
    DaemonConfig config;
    CHECK(config.compile_limits.cpu_ms == 2000);
    CHECK(config.compile_limits.bytes == 268'435'456);
    const uint64_t levels = config.compile_limits.levels;
    REQUIRE(SetCompileMs(1, &config.compile_limits).ok());
    CHECK(config.compile_limits.cpu_ms == 1);
    REQUIRE(SetCompileMs(60'000, &config.compile_limits).ok());
    CHECK(config.compile_limits.cpu_ms == 60'000);
    CHECK(
        Mentions(SetCompileMs(0, &config.compile_limits), "compile_ms = 0 is outside 1 .. 60000"));
    CHECK(Mentions(SetCompileMs(-1, &config.compile_limits), "compile_ms = -1"));
    CHECK(Mentions(SetCompileMs(60'001, &config.compile_limits), "compile_ms = 60001"));
    // Two compiles have an eighth of the memory, and the sessions have less by what these may take.
    const auto set = [&config](int64_t memory_mib, int64_t compile_mib) {
      return SetMemory({.memory_mib = memory_mib, .compile_mib = compile_mib}, {}, &config);
    };
    REQUIRE(set(65'536, 4096).ok());
    CHECK(config.compile_limits.bytes == 4'294'967'296);
    const uint64_t sessions_bytes = config.memory.sessions_bytes;
    REQUIRE(set(65'536, 16).ok());
    CHECK(config.compile_limits.bytes == 16'777'216);
    CHECK(config.memory.sessions_bytes - sessions_bytes == 2 * uint64_t{4'278'190'080});
    CHECK(config.compile_limits.levels == levels);
    CHECK(Mentions(set(65'536, 15), "compile_mib = 15 is outside 16 .. 4096"));
    CHECK(Mentions(set(65'536, 4097), "compile_mib = 4097"));
    CHECK(Mentions(set(65'535, 4096), "compile_mib = 4096 is more than a sixteenth"));
  }

  TEST_CASE("what one engine may have is bounded by flags, and by the protocol") {
    DaemonConfig config;
    CHECK(config.session.sequences == 65536);
    CHECK(config.session.rounds == 64);
    CHECK(
        SetSessionBounds({.sequences = 64, .rounds = 4, .openings_per_second = 100}, &config).ok());
    CHECK(config.session.openings_per_second == 100);
    SessionLimits asked{.max_sequences = 64, .ring_depth = 4};
    CHECK(CheckSessionBounds(config.session, asked).ok());
    asked.ring_depth = 8;
    CHECK(Mentions(CheckSessionBounds(config.session, asked), "ring_depth = 8"));
    // EXHAUSTED would have an engine ask again and again.
    CHECK(ErrorCodeOf(CheckSessionBounds(config.session, asked)) == SPECD_ERROR_UNSUPPORTED);
    CHECK(Mentions(CheckSessionBounds(config.session, asked), "--session_rounds=8"));
    asked = {.max_sequences = 65, .ring_depth = 4};
    CHECK(Mentions(CheckSessionBounds(config.session, asked), "--session_sequences=65"));
    CHECK(Mentions(SetSessionBounds({.sequences = 0, .rounds = 4}, &config), "sequences = 0"));
    CHECK(Mentions(SetSessionBounds({.sequences = 1, .rounds = 65}, &config), "1 .. 64"));
    CHECK(Mentions(
        SetSessionBounds({.sequences = 1, .rounds = 1, .openings_per_second = -1}, &config),
        "openings_per_second = -1"));
  }
}

}  // namespace
}  // namespace specd
