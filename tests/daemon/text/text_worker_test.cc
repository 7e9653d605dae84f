// A text worker publishes texts and heartbeats, and says that it lives.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/daemon/text/text_worker_fixture.h"

namespace specd {
namespace {

using Fixture = TextWorkerFixture;

TEST_SUITE("unit") {
  TEST_CASE("texts are numbered one by one and carry the daemon's epoch") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {f.Open(1), f.Tokens(1, 0, {0}), f.Open(2)});
    f.HearBatch(2, {f.Tokens(2, 0, {1}), f.Tokens(1, 1, {2})});
    const std::vector<TextEvent> texts = f.Texts();
    REQUIRE(texts.size() == 5);
    for (size_t i = 0; i < texts.size(); ++i) {
      CHECK(texts[i].seq == i + 1);
      CHECK(texts[i].epoch == Fixture::kEpoch);
    }
    CHECK(texts[3].text == "b");
    CHECK(texts[4].text == "c");
    CHECK(f.Aborts().empty());
  }

  TEST_CASE("a heartbeat every 200 ms names the last text and the streams that live") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {f.Open(1), f.Open(2), f.Tokens(1, 0, {0})});
    f.Texts();
    f.Tick();
    f.clock.AdvanceNs(Fixture::kHeartbeatNs - 1);
    f.worker->Step(absl::ZeroDuration());
    const std::vector<Heartbeat> heartbeats = f.Heartbeats();
    REQUIRE(heartbeats.size() == 1);
    CHECK(heartbeats[0].epoch == Fixture::kEpoch);
    CHECK(heartbeats[0].seq == 3);
    CHECK(heartbeats[0].streams == 2);
    const std::vector<SignOfLife> signs = f.SignsOfLife();
    REQUIRE_FALSE(signs.empty());
    CHECK(heartbeats[0].instance == signs.back().instance);
  }

  TEST_CASE("another daemon has other streams: those of the one before are forgotten") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {f.Open(1)});
    f.Texts();
    f.HearHeartbeat(Fixture::kEpoch + 1, 5);
    // Readers see the epoch. Their engine may open the streams again.
    CHECK(f.Texts().empty());
    CHECK(f.Aborts().empty());
    f.clock.AdvanceNs(Fixture::kHeartbeatNs);
    f.worker->Step(absl::ZeroDuration());
    CHECK(f.Heartbeats().back().streams == 0);
    // The new daemon's numbers count from the first one that was heard.
    f.HearBatch(6, {f.Open(1, {"z"})}, Fixture::kEpoch + 1);
    const std::vector<TextEvent> texts = f.Texts();
    REQUIRE(texts.size() == 1);
    CHECK(texts[0].epoch == Fixture::kEpoch + 1);
    f.HearBatch(7, {f.Tokens(1, 4, {0})}, Fixture::kEpoch + 1);
    const std::vector<AbortRequest> aborts = f.Aborts();
    REQUIRE(aborts.size() == 1);
    CHECK(aborts[0].epoch == Fixture::kEpoch + 1);
  }

  TEST_CASE("only who has heard the daemon within a second says that it is alive") {
    Fixture f;
    f.Tick();
    CHECK(f.SignsOfLife().empty());
    f.Attach();
    for (int i = 1; i <= 4; ++i) f.Tick();
    const std::vector<SignOfLife> signs = f.SignsOfLife();
    REQUIRE(signs.size() == 4);
    for (const SignOfLife& alive : signs) {
      CHECK(alive.epoch == Fixture::kEpoch);
      CHECK(alive.instance == signs[0].instance);
    }
    f.Tick();  // a second after the last word
    CHECK(f.SignsOfLife().empty());
    // A pause of the worker is no silence of the daemon.
    f.HearHeartbeat(Fixture::kEpoch, 0);
    f.clock.AdvanceNs(3'600'000'000'000);
    f.Tick();
    CHECK(f.SignsOfLife().size() == 1);
    f.Tick();
    f.Tick();
    f.Tick();
    f.Tick();
    CHECK(f.SignsOfLife().size() == 3);
    f.HearHeartbeat(Fixture::kEpoch, 0);
    f.Tick();
    CHECK(f.SignsOfLife().size() == 1);
    f.HearHeartbeat(Fixture::kEpoch,
                    1);  // a message was lost: the daemon must hear of a new instance
    f.Tick();
    const std::vector<SignOfLife> after_loss = f.SignsOfLife();
    REQUIRE(after_loss.size() == 1);
    CHECK(after_loss[0].instance != signs[0].instance);

    Fixture other;
    other.Attach();
    other.Tick();
    const std::vector<SignOfLife> of_other = other.SignsOfLife();
    REQUIRE(of_other.size() == 1);
    CHECK(of_other[0].instance != signs[0].instance);
  }
}

}  // namespace
}  // namespace specd
