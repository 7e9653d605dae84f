// Rounds on a CUDA stream, with rows and next tokens in pretended device memory. The tests check
// the words that the CUDA stream finds when it continues: after an answer, after a release, and
// after the engine was killed.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/client/device_host.h"
#include "tests/support/peer_engine.h"

namespace specd {
namespace {

using test::DeviceEngine;
using test::DeviceHost;
using test::HostEngine;
using test::kNextOffset;

constexpr uint32_t kForeverMs = 3'600'000;
constexpr uint32_t kInFlight = 4;

// An engine with all tensors in device memory, and one sequence.
struct StreamingEngine : DeviceEngine {
  explicit StreamingEngine(const std::string& uri, uint32_t stream_timeout_ms = kForeverMs,
                           const PeerEnvironment& environment = {})
      : DeviceEngine(uri, stream_timeout_ms, environment), address(Allocate()) {
    ShareAll(address);
    sequence = OpenSequence(1);
  }

  uint64_t OpenSequence(uint64_t seed) {
    const PeerReply opened = peer.Call({.op = PeerOp::kOpenSequence, .value = seed});
    REQUIRE(opened.code == SPECD_OK);
    return opened.value;
  }
  int Submit(uint32_t first_row) {
    return peer
        .Call({.op = PeerOp::kSubmitOnStream,
               .address = NextAddress(),
               .word = first_row,
               .value = sequence})
        .code;
  }
  // The number of rounds that the CUDA stream has passed.
  uint64_t Await() {
    const PeerReply reply = peer.Call({.op = PeerOp::kAwaitStream});
    REQUIRE(reply.code == kGpuOk);
    return reply.value;
  }
  PeerReply Seen(uint64_t round) { return peer.Call({.op = PeerOp::kSeen, .word = round}); }
  PeerReply Poll() {
    const PeerReply reply = peer.Call({.op = PeerOp::kPoll});
    REQUIRE(reply.code == SPECD_OK);
    return reply;
  }
  uint64_t NextAddress() const {
    return address + kNextOffset + (sequence & 0xffff) * sizeof(int32_t);
  }

  uint64_t address = 0;
  uint64_t sequence = 0;
};

std::vector<int32_t> TokensIn(const PeerReply& reply) {
  return {reply.tokens, reply.tokens + reply.size_bytes};
}

// Rounds in flight without a wait of the CPU. Each passes with its own token in next tokens.
void CheckRounds(StreamingEngine& engine) {
  HostEngine host;
  specd_sequence on_host = 0;
  REQUIRE(host.engine.OpenSequence(1, &on_host) == SPECD_OK);
  uint64_t num_rounds = 0;
  for (int turn = 0; turn < 3; ++turn) {
    for (uint32_t i = 0; i < kInFlight; ++i) REQUIRE(engine.Submit(i * 5) == SPECD_OK);
    CHECK(engine.Await() == num_rounds + kInFlight);
    for (uint32_t i = 0; i < kInFlight; ++i) {
      const PeerReply answer = engine.Poll();
      CHECK(answer.value == SPECD_STATUS_OK);
      const std::vector<int32_t> kept = host.Round(on_host, i * 5);
      CHECK(TokensIn(answer) == kept);
      const PeerReply seen = engine.Seen(num_rounds++);
      CHECK(seen.size_bytes == 1);
      REQUIRE_FALSE(kept.empty());
      CHECK(static_cast<int32_t>(seen.value) == kept.back());
    }
  }
}

// A daemon that is held in the middle of a round until it is let go.
struct HeldDaemon {
  HeldDaemon() {
    host.gpu.before_round = [this](const RoundBatch&) {
      is_held = true;
      while (!may_go_on) std::this_thread::yield();
    };
  }
  ~HeldDaemon() { may_go_on = true; }

  const std::string& uri() const { return host.host->uri; }
  bool HasImports() const { return host.platform.gpu->num_imports() > 0; }

  std::atomic<bool> is_held = false;
  std::atomic<bool> may_go_on = false;
  DeviceHost host;  // destroyed first
};

TEST_SUITE("process") {
  TEST_CASE("a stream goes on with the round's token in device memory, whoever waits in it") {
    for (const char* const waits : {"device", "host"}) {
      CAPTURE(waits);
      DeviceHost daemon;
      StreamingEngine engine(daemon.host->uri, kForeverMs,
                             {std::string("SPECD_STREAM_WAITS=") + waits});
      CheckRounds(engine);
      CHECK(engine.peer.Call({.op = PeerOp::kCountViolations}).value == 0);
      CHECK(daemon.platform.gpu->violations().empty());
    }
  }

  TEST_CASE("a daemon that is late with a round leaves the engine the token it has put there") {
    HeldDaemon daemon;
    StreamingEngine engine(daemon.uri(), 20);
    // A round may be released before the daemon has come to it; then the test takes another round.
    uint64_t num_rounds = 0;
    while (!daemon.is_held) {
      const int code = engine.Submit(0);
      if (code == SPECD_FULL) continue;
      REQUIRE(code == SPECD_OK);
      num_rounds = engine.Await();
      CHECK(engine.Poll().value == SPECD_STATUS_ABORTED);
    }
    CHECK(engine.Seen(num_rounds - 1).size_bytes == 0);
    CHECK(engine.ReadId(engine.NextAddress()) == PeerEngine::kOwnToken);
    daemon.may_go_on = true;
    // After the answer of a later round the late round is done.
    const PeerReply round =
        engine.peer.Call({.op = PeerOp::kRound, .word = 5, .value = engine.OpenSequence(2)});
    REQUIRE(round.code == SPECD_OK);
    CHECK(round.size_bytes > 0);
    CHECK(engine.ReadId(engine.NextAddress()) == PeerEngine::kOwnToken);
  }

  TEST_CASE("an engine that is killed with a round on its stream: the daemon serves the next") {
    HeldDaemon daemon;
    bool is_taken = false;
    {
      StreamingEngine engine(daemon.uri());
      SUBCASE("its rows are not ready") {
        daemon.may_go_on = true;
        REQUIRE(engine.peer.Call({.op = PeerOp::kHoldStream}).code == kGpuOk);
        REQUIRE(engine.Submit(0) == SPECD_OK);
        engine.peer.Kill();
      }
      SUBCASE("it is being verified") {
        REQUIRE(engine.Submit(0) == SPECD_OK);
        is_taken = true;
        while (!daemon.is_held) std::this_thread::yield();
        engine.peer.Kill();
        // Its memory stays mapped for as long as the round may write to it.
        CHECK(daemon.HasImports());
        daemon.may_go_on = true;
      }
      // The hang-up is noticed by the control thread; a test that waits in vain hangs.
      while (daemon.HasImports()) std::this_thread::yield();
      CHECK(daemon.is_held == is_taken);
    }
    StreamingEngine next(daemon.uri());
    CheckRounds(next);
    CHECK(daemon.host.platform.gpu->violations().empty());
  }
}

}  // namespace
}  // namespace specd
