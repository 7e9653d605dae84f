// Rounds on streams whose stream was let go: who answers them, and what a late daemon can still do.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "ipc/include/specd/specd.h"
#include "tests/ipc/segment/stream_rounds.h"

namespace specd {
namespace {

using test::kSequence0;
using test::MakeReady;
using test::Pair;
using test::ReleaseStream;
using test::SubmitOnStream;
using test::TakeAndAnswer;
using test::TwoTokens;
using test::WordsOf;

TEST_SUITE("unit") {
  TEST_CASE("an aborted round is answered at once, and its entry waits for the late daemon") {
    Pair pair;
    for (uint64_t id = 11; id <= 14; ++id) REQUIRE(SubmitOnStream(&pair, id) == PushResult::kOk);
    MakeReady(pair, 1);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));  // and now the daemon is slow
    CHECK_FALSE(pair.engine.HasCompletion());
    ReleaseStream(pair, 1);
    CHECK(pair.engine.HasCompletion());
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.round_id == 11);
    REQUIRE(pair.completion.results.size() == 2);
    for (uint64_t i = 0; i < 2; ++i) {
      CHECK(pair.completion.results[i].sequence == kSequence0 + i);
      CHECK(pair.completion.results[i].status == RoundStatus::kAborted);
      CHECK(pair.completion.results[i].num_kept == 0);
    }
    // Once, and the others are not affected.
    CHECK_FALSE(pair.engine.Poll(&pair.completion));
    CHECK(pair.engine.in_flight());
    // The entry is in quarantine: the ring is as full as it was.
    CHECK(SubmitOnStream(&pair, 15) == PushResult::kFull);
    // The daemon wakes up, and is told that it was too late.
    CHECK_FALSE(pair.daemon.Claim(pair.copy));
    pair.CompleteEmpty();
    CHECK(WordsOf(pair, 1)->status.load() == (1 << 8 | 1));
    // Its completion is dropped; the entry is free.
    CHECK_FALSE(pair.engine.HasCompletion());
    CHECK(SubmitOnStream(&pair, 15) == PushResult::kOk);
    MakeReady(pair, 2);
    REQUIRE(TakeAndAnswer(&pair));
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.round_id == 12);
    CHECK(pair.completion.results[0].status == RoundStatus::kOk);
  }

  TEST_CASE(
      "an entry's next round releases a stream that a daemon killed behind its completion left") {
    Pair pair({32000, 4, 8, 3, 1, 2});
    REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
    MakeReady(pair, 1);
    REQUIRE(TakeAndAnswer(&pair));
    WordsOf(pair, 1)->done.store(0);  // the completion was its last deed
    REQUIRE(pair.engine.Poll(&pair.completion));
    // The stream still waits for round 1, so it would never say that round 2 is ready.
    REQUIRE(SubmitOnStream(&pair, 2) == PushResult::kOk);
    CHECK(WordsOf(pair, 1)->done.load() == 1);
  }

  TEST_CASE("an abort waits for the answers of earlier rounds") {
    Pair pair;
    REQUIRE(pair.Submit(1, TwoTokens()) == PushResult::kOk);
    REQUIRE(SubmitOnStream(&pair, 2) == PushResult::kOk);
    MakeReady(pair, 2);
    ReleaseStream(pair, 2);
    CHECK_FALSE(pair.engine.Poll(&pair.completion));
    REQUIRE(TakeAndAnswer(&pair));
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.round_id == 1);
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.round_id == 2);
    CHECK(pair.completion.results[0].status == RoundStatus::kAborted);
  }

  TEST_CASE("where all rounds were answered here, a free entry is what there is to wait for") {
    Pair pair({32000, 4, 8, 3, 1, 2});
    REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
    MakeReady(pair, 1);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    ReleaseStream(pair, 1);
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK_FALSE(pair.engine.HasCompletion());
    pair.CompleteEmpty();
    CHECK(pair.engine.HasCompletion());
    CHECK_FALSE(pair.engine.Poll(&pair.completion));
    CHECK_FALSE(pair.engine.in_flight());
    CHECK(SubmitOnStream(&pair, 2) == PushResult::kOk);
  }

  TEST_CASE("without a daemon the rounds on streams that it did not answer are aborted") {
    Pair pair;
    for (uint64_t id = 1; id <= 3; ++id) REQUIRE(SubmitOnStream(&pair, id) == PushResult::kOk);
    MakeReady(pair, 1);
    REQUIRE(TakeAndAnswer(&pair));
    pair.engine.SetDaemonGone();
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.results[0].status == RoundStatus::kOk);
    for (uint64_t id = 2; id <= 3; ++id) {
      REQUIRE(pair.engine.Poll(&pair.completion));
      CHECK(pair.completion.round_id == id);
      CHECK(pair.completion.results[0].status == RoundStatus::kAborted);
    }
    CHECK_FALSE(pair.engine.Poll(&pair.completion));
  }

  TEST_CASE("rounds on streams and others wrap the ring a thousand times over") {
    Pair pair;
    for (uint64_t number = 1; number <= 4000; ++number) {
      const bool on_stream = number % 3 != 0;
      REQUIRE((on_stream ? SubmitOnStream(&pair, number) : pair.Submit(number, TwoTokens())) ==
              PushResult::kOk);
      REQUIRE(pair.daemon.IsHeld() == on_stream);
      if (on_stream) MakeReady(pair, number);
      if (number % 7 == 0 && on_stream) {
        ReleaseStream(pair, number);
        REQUIRE(pair.engine.Poll(&pair.completion));
        REQUIRE(pair.completion.round_id == number);
        REQUIRE(TakeAndAnswer(&pair));
        REQUIRE_FALSE(pair.engine.Poll(&pair.completion));
      } else {
        REQUIRE(TakeAndAnswer(&pair));
        REQUIRE(pair.engine.Poll(&pair.completion));
        REQUIRE(pair.completion.round_id == number);
      }
      REQUIRE(WordsOf(pair, number)->done.load() == number);
    }
  }

  TEST_CASE("an engine that writes into the words of a round harms its own rounds") {
    Pair pair;
    WordsOf(pair, 1)->status.store(~uint64_t{0});
    WordsOf(pair, 1)->done.store(~uint64_t{0});
    REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
    MakeReady(pair, 1);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    CHECK_FALSE(pair.daemon.Claim(pair.copy));
    pair.CompleteEmpty();
    pair.daemon.Abandon();
    CHECK(pair.daemon.fault() == ChannelFault::kNone);
  }

  // A completion that came between two looks was taken for the next round's answer.
  TEST_CASE("a late answer is never delivered, whenever it comes, and the next one always is") {
    Pair pair({32000, 4, 8, 3, 4, 2});
    std::atomic<int> to_answer{0};
    std::atomic<int> answered{0};
    std::atomic<bool> stop{false};
    std::thread daemon([&] {
      while (!stop.load()) {
        if (answered.load() < to_answer.load() && TakeAndAnswer(&pair)) answered.fetch_add(1);
      }
    });
    // Waits for the daemon; false if the engine is given anything meanwhile.
    const auto stays_silent = [&] {
      bool is_silent = true;
      to_answer.fetch_add(1);
      while (answered.load() < to_answer.load()) {
        is_silent = is_silent && !pair.engine.Poll(&pair.completion);
      }
      return is_silent && !pair.engine.Poll(&pair.completion) && !pair.engine.in_flight();
    };
    const auto gets = [&](uint64_t round_id) {
      return pair.engine.Poll(&pair.completion) && pair.completion.round_id == round_id;
    };
    constexpr uint64_t kLaps = 3000;
    uint64_t lap = 0;
    for (; lap < kLaps; ++lap) {
      const uint64_t number = pair.engine.next_number();
      if (SubmitOnStream(&pair, 2 * lap) != PushResult::kOk) break;
      MakeReady(pair, number);
      ReleaseStream(pair, number);
      if (!gets(2 * lap) || !stays_silent()) break;
      if (pair.Submit(2 * lap + 1, TwoTokens()) != PushResult::kOk) break;
      to_answer.fetch_add(1);
      while (answered.load() < to_answer.load()) {
      }
      if (!gets(2 * lap + 1)) break;
    }
    stop = true;
    daemon.join();
    CHECK(lap == kLaps);
  }

  // A round's words are also those of the round ring_depth later, which no engine has submitted.
  TEST_CASE("the end of a session leaves kernels the word of an answered round") {
    for (const uint32_t ring_depth : {1u, 4u}) {
      CAPTURE(ring_depth);
      Pair pair({32000, 4, 8, 3, ring_depth, 2});
      REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
      MakeReady(pair, 1);
      REQUIRE(TakeAndAnswer(&pair));
      pair.daemon.Abandon();
      CHECK(WordsOf(pair, 1)->status.load() == (1 << 8));
      CHECK(IsReleased(*WordsOf(pair, 1), 1));
      // A round that was submitted and not answered is aborted.
      Pair waiting({32000, 4, 8, 3, ring_depth, 2});
      REQUIRE(SubmitOnStream(&waiting, 1) == PushResult::kOk);
      waiting.daemon.Abandon();
      CHECK(IsAborted(*WordsOf(waiting, 1), 1));
      CHECK(IsReleased(*WordsOf(waiting, 1), 1));
    }
  }
}

}  // namespace
}  // namespace specd
