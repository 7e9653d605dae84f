// Text sides that share the streams of one daemon by the hash of their request ids.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "ipc/events/text_shard.h"
#include "tests/daemon/text/publisher_fixture.h"
#include "tests/daemon/text/text_worker_fixture.h"

namespace specd {
namespace {

// The shards of "r3", "r4", "r5" and "r6" among two, by Python's integers.
constexpr std::array<uint32_t, 4> kShardsOfTwo = {1, 1, 0, 0};

TEST_SUITE("unit") {
  TEST_CASE("shards: each request id has one, by its hash") {
    for (size_t i = 0; i < kShardsOfTwo.size(); ++i) {
      const std::string name = "r" + std::to_string(i + 3);
      CHECK(TextShard{.index = kShardsOfTwo[i], .count = 2}.Has(name));
      CHECK_FALSE(TextShard{.index = 1 - kShardsOfTwo[i], .count = 2}.Has(name));
      CHECK(TextShard{}.Has(name));
    }
  }

  TEST_CASE("shards: ids that count in steps have all shards alike") {
    std::array<int, 4> num_ids = {};
    for (int i = 0; i < 1000; ++i) {
      for (uint32_t shard = 0; shard < 4; ++shard) {
        num_ids[shard] += TextShard{.index = shard, .count = 4}.Has("req-" + std::to_string(4 * i));
      }
    }
    for (const int num : num_ids) {
      CHECK(num > 200);  // 250 with a deviation of 14, if the hash were random
      CHECK(num < 300);
    }
  }

  TEST_CASE("shards: of the streams of others a worker makes nothing") {
    for (const uint32_t index : {0u, 1u}) {
      TextWorkerFixture f({}, {.index = index, .count = 2});
      f.Attach();
      f.HearBatch(1, {f.Open(3), f.Open(4), f.Open(5), f.Open(6), f.Tokens(3, 0, {0}),
                      f.Tokens(4, 0, {1}), f.Tokens(5, 0, {2}), f.Tokens(6, 0, {3})});
      f.memory.Keep(f.kEpoch, 2, {f.Tokens(4, 1, {0}), f.Tokens(5, 1, {1})});  // is lost
      f.HearBatch(3, {f.End(3, 1), f.End(4, 2), f.End(5, 2), f.End(6, 1)});
      std::array<std::string, 4> texts;
      for (const TextEvent& event : f.Texts()) texts[event.stream - 3] += event.text;
      const std::array<std::string, 4> all = {"a", "ba", "cb", "d"};
      for (size_t i = 0; i < all.size(); ++i) {
        CHECK(texts[i] == (kShardsOfTwo[i] == index ? all[i] : ""));
      }
      CHECK(f.worker->meters().unknown_events.value() == 0);
      f.Tick();
      const std::vector<SignOfLife> signs = f.SignsOfLife();
      REQUIRE_FALSE(signs.empty());
      CHECK(signs.back().shard.index == index);
      CHECK(signs.back().shard.count == 2);
    }
  }

  TEST_CASE("shards: a fork whose source is of another shard has the text before it") {
    // Stream 4 and its fork, stream 5, are of different shards.
    TextWorkerFixture f({}, {.index = kShardsOfTwo[2], .count = 2});
    f.Attach();
    f.HearBatch(1, {f.Open(4, {"bc"}), f.Tokens(4, 0, {0, 1})});
    TokenEvent fork = f.Open(5, {"bc"});
    fork.offset = 2;
    fork.opening()->forked_from = 4;
    f.HearBatch(2, {fork, f.Tokens(5, 2, {2})});
    // The stop string began in the source.
    const std::vector<TextEvent> texts = f.Texts();
    REQUIRE_FALSE(texts.empty());
    CHECK(texts.back().stream == 5);
    CHECK(texts.back().finish_reason == SPECD_FINISH_STOP);
    CHECK(texts.back().stop_string == "bc");
    CHECK(texts.back().tokens == 3);
    CHECK(f.worker->meters().broken_streams.value() == 0);
  }

  TEST_CASE("shards: stop strings are accepted while all text sides live") {
    PublisherFixture f;
    f.SendAlive({kEpoch, 1, {.index = 0, .count = 2}});
    f.publisher->Step();
    CHECK_FALSE(f.publisher->TextSideAlive());
    f.SendAlive({kEpoch, 2, {.index = 1, .count = 2}});
    f.publisher->Step();
    CHECK(f.publisher->TextSideAlive());
    const std::array<SequenceHandle, 2> of = {f.OpenWithStop("r5"), f.OpenWithStop("r4")};
    f.publisher->Step();
    // Only the streams of a text side that is gone for good are aborted.
    for (int64_t ns = 0; ns <= f.kGraceNs; ns += 1'000'000'000) {
      f.SendAlive({kEpoch, 2, {.index = 1, .count = 2}});
      f.PassTime(1'000'000'000);
    }
    CHECK_FALSE(f.publisher->TextSideAlive());
    CHECK(f.FinishOf(of[0]) == SPECD_FINISH_ABORT);
    CHECK(f.FinishOf(of[1]) == SPECD_FINISH_NONE);
  }

  TEST_CASE("shards: another number of text sides takes over after the ones before") {
    PublisherFixture f;
    f.SendAlive({kEpoch, 1});
    f.publisher->Step();
    const SequenceHandle watched = f.OpenWithStop("r4");
    f.publisher->Step();
    f.SendAlive({kEpoch, 2, {.index = 0, .count = 2}});
    f.publisher->Step();
    CHECK(f.publisher->TextSideAlive());  // refused: the one before lives
    f.PassTime(3'000'000'000);
    f.SendAlive({kEpoch, 2, {.index = 0, .count = 2}});
    f.publisher->Step();
    CHECK_FALSE(f.publisher->TextSideAlive());
    // The stream waits for the text side of its shard, and not for ever.
    f.PassTime(f.kGraceNs - 4'000'000'000);
    CHECK(f.FinishOf(watched) == SPECD_FINISH_NONE);
    f.PassTime(4'000'000'000);
    CHECK(f.FinishOf(watched) == SPECD_FINISH_ABORT);
  }
}

TEST_SUITE("fault") {
  TEST_CASE("a text side with another tokenizer than the daemon's closes") {
    TextWorkerFixture f;
    f.memory.SetTokenizer(f.kTokenizer);
    f.Attach();
    CHECK_FALSE(f.worker->closed());
    f.memory.SetTokenizer(f.kTokenizer + 1);
    f.HearHeartbeat(f.kEpoch, 1);  // a message was lost, and the worker asks
    CHECK(f.worker->closed());
    f.Tick();
    CHECK(f.SignsOfLife().empty());
  }
}

}  // namespace
}  // namespace specd
