// The words that streams wait for: who decides, and what holds a round. Numbers and values are the
// ones of docs/PROTOCOL.md.
#include "ipc/segment/round_words.h"

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
  TEST_CASE("round words: the first decision is final") {
    RoundWords words{};
    CHECK(Decide(&words, 7, RoundEnd::kAborted) == RoundEnd::kAborted);
    CHECK(Decide(&words, 7, RoundEnd::kAnswered) == RoundEnd::kAborted);
    CHECK(words.status.load() == (7 << 8 | 1));
    CHECK(IsAborted(words, 7));
    CHECK_FALSE(IsAborted(words, 3));
    CHECK(Decide(&words, 11, RoundEnd::kAnswered) == RoundEnd::kAnswered);
    CHECK(Decide(&words, 11, RoundEnd::kAborted) == RoundEnd::kAnswered);
    CHECK(words.status.load() == 11 << 8);
    CHECK(Decide(&words, 15, RoundEnd::kFailed) == RoundEnd::kFailed);
    CHECK(Decide(&words, 15, RoundEnd::kAborted) == RoundEnd::kFailed);
    CHECK_FALSE(IsAborted(words, 15));
    CHECK(words.status.load() == (15 << 8 | 2));
    // A number ahead of its time has no round: nothing is confirmed.
    CHECK(Decide(&words, 11, RoundEnd::kAnswered) == RoundEnd::kAborted);
  }

  TEST_CASE("round words: a claim is taken back, and no other end") {
    for (const RoundEnd end : {RoundEnd::kAnswered, RoundEnd::kAborted, RoundEnd::kFailed}) {
      CAPTURE(static_cast<int>(end));
      RoundWords words{};
      Decide(&words, 7, end);
      Withdraw(&words, 3);
      CHECK(words.status.load() == PackRoundEnd(7, end));
      Withdraw(&words, 7);
      CHECK(IsAborted(words, 7) == (end == RoundEnd::kAborted));
      CHECK((words.status.load() == PackRoundEnd(7, RoundEnd::kFailed)) ==
            (end != RoundEnd::kAborted));
    }
  }

  TEST_CASE("round words: done only grows, so a late daemon takes nothing back") {
    RoundWords words{};
    Release(&words, 12);
    Release(&words, 8);
    CHECK(words.done.load() == 12);
    CHECK(IsReleased(words, 8));
    CHECK(IsReleased(words, 12));
    CHECK_FALSE(IsReleased(words, 16));
  }

  TEST_CASE("round words: rows are ready at their number, in words of 64 or 32 bits") {
    RoundWords words{};
    const uint64_t number = (uint64_t{1} << 32) + 5;
    words.ready.store(number);
    CHECK(AreRowsReady(words, number));
    words.ready.store(5);  // what a write of 32 bits leaves
    CHECK(AreRowsReady(words, number));
    words.ready.store(number - 4);  // a lap ago
    CHECK_FALSE(AreRowsReady(words, number));
    words.ready.store(1);  // the same in 32 bits
    CHECK_FALSE(AreRowsReady(words, number));
    words.ready.store(number - 8);  // before the low half began anew: a larger one, of a lap ago
    CHECK_FALSE(AreRowsReady(words, number));
  }

  TEST_CASE("round words: a mark is of one round, in words of 64 or 32 bits") {
    const uint64_t number = (uint64_t{1} << 32) + 7;
    RoundWords words{};
    CHECK_FALSE(AreDraftsMarked(words, number));
    words.drafts.store(7);  // as a device with words of 32 bits writes it
    CHECK(AreDraftsMarked(words, number));
    MarkDrafts(&words, number + 4);
    CHECK_FALSE(AreDraftsMarked(words, number));
    CHECK(AreDraftsMarked(words, number + 4));
    TakeBackMark(&words, number + 4);
    CHECK_FALSE(AreDraftsMarked(words, number + 4));
    CHECK_FALSE(AreRowsReady(words, number + 4));
    CHECK_FALSE(HasPassed(words, number + 4));
  }

  TEST_CASE("round words: a stream has passed where it says so, and not where it was let go") {
    RoundWords words{};
    const uint64_t number = (uint64_t{1} << 32) + 5;
    words.ready.store(number);
    Release(&words, number);
    CHECK_FALSE(HasPassed(words, number));
    words.passed.store(number - 4);  // a lap ago
    CHECK_FALSE(HasPassed(words, number));
    words.passed.store(5);  // what a write of 32 bits leaves
    CHECK(HasPassed(words, number));
  }

  TEST_CASE("round words: what an entry was left with is taken back, and what came since is not") {
    RoundWords words{};
    words.passed.store(9);  // as by an engine that wrote where it may
    const uint64_t found = words.passed.load();
    TakeBackPassed(&words, found, 9);
    CHECK_FALSE(HasPassed(words, 9));
    TakeBackPassed(&words, words.passed.load(), 9);
    CHECK_FALSE(HasPassed(words, 9));
    // A function of the host may be through before the one who enqueued it goes on.
    MarkPassed(&words, 9);
    TakeBackPassed(&words, found - 1, 9);
    CHECK(HasPassed(words, 9));
    // The entry's last round on the same stream may not have passed when this one is enqueued.
    words.passed.store(1);
    MarkPassed(&words, 5);
    TakeBackPassed(&words, 1, 9);
    CHECK(HasPassed(words, 5));
    CHECK_FALSE(HasPassed(words, 9));
  }

  TEST_CASE("round words: of two threads that decide exactly one wins, and both know which") {
    for (uint64_t number = 1; number <= 2000; ++number) {
      RoundWords words{};
      RoundEnd seen[2] = {};
      std::thread daemon([&] { seen[0] = Decide(&words, number, RoundEnd::kAnswered); });
      seen[1] = Decide(&words, number, RoundEnd::kAborted);
      daemon.join();
      REQUIRE(seen[0] == seen[1]);
      REQUIRE(words.status.load() == PackRoundEnd(number, seen[0]));
    }
  }

  TEST_CASE("a round on a stream is held until its rows are ready, and not a moment longer") {
    Pair pair;
    REQUIRE(SubmitOnStream(&pair, 40) == PushResult::kOk);
    CHECK(pair.daemon.IsHeld());
    CHECK_FALSE(pair.daemon.HasSubmission());
    CHECK_FALSE(pair.daemon.Take(&pair.copy, 2));
    MakeReady(pair, 1);
    CHECK_FALSE(pair.daemon.IsHeld());
    CHECK(pair.daemon.HasSubmission());
    REQUIRE(TakeAndAnswer(&pair));
    CHECK(WordsOf(pair, 1)->done.load() == 1);
    CHECK(WordsOf(pair, 1)->status.load() == 1 << 8);
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.round_id == 40);
  }

  TEST_CASE("a round that is not on a stream is ready when it is submitted, and has a done word") {
    Pair pair;
    REQUIRE(pair.Submit(1, TwoTokens()) == PushResult::kOk);
    CHECK_FALSE(pair.daemon.IsHeld());
    REQUIRE(TakeAndAnswer(&pair));
    CHECK(WordsOf(pair, 1)->done.load() == 1);
  }

  TEST_CASE("words that an old round left do not make the next one of its entry ready") {
    // The first stream round of an entry may come after any number of others.
    Pair pair;
    WordsOf(pair, 1)->ready.store(1);
    REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
    CHECK(pair.daemon.IsHeld());
  }

  TEST_CASE("every way in which a round ends releases its stream") {
    Pair pair;
    SUBCASE("malformed") {
      REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
      pair.entry(0)->num_records = 99;
      MakeReady(pair, 1);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      CHECK(pair.copy.malformed());
      pair.CompleteEmpty();
      CHECK(WordsOf(pair, 1)->status.load() == (1 << 8 | 2));
      CHECK(WordsOf(pair, 1)->done.load() == 1);
    }
    SUBCASE("not claimed, because it could not be run") {
      REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
      MakeReady(pair, 1);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      pair.CompleteEmpty();
      CHECK(WordsOf(pair, 1)->status.load() == (1 << 8 | 2));
      CHECK(WordsOf(pair, 1)->done.load() == 1);
    }
    SUBCASE("a call, which is on no stream, is answered all the same") {
      REQUIRE(pair.engine.Call(CoinsCall{kSequence0, {}}, 1) == PushResult::kOk);
      REQUIRE(pair.daemon.Take(&pair.copy, 2));
      pair.daemon.Complete(pair.copy, std::span<const SequenceResult>(), 3);
      CHECK(WordsOf(pair, 1)->status.load() == 1 << 8);
      CHECK(WordsOf(pair, 1)->done.load() == 1);
    }
    SUBCASE("the session ends: rounds in flight and those about to be submitted") {
      REQUIRE(pair.Submit(1, TwoTokens()) == PushResult::kOk);
      REQUIRE(TakeAndAnswer(&pair));
      REQUIRE(SubmitOnStream(&pair, 2) == PushResult::kOk);
      pair.daemon.Abandon();
      CHECK(IsAborted(*WordsOf(pair, 2), 2));
      for (uint64_t number = 2; number <= 5; ++number) {
        CHECK(WordsOf(pair, number)->status.load() != PackRoundEnd(number, RoundEnd::kAnswered));
        CHECK(IsReleased(*WordsOf(pair, number), number));
      }
      // One that was on its way: the hang-up that follows says what became of it.
      REQUIRE(SubmitOnStream(&pair, 3) == PushResult::kOk);
      pair.engine.SetDaemonGone();
      REQUIRE(pair.engine.Poll(&pair.completion));
      CHECK(pair.completion.round_id == 1);
      for (const uint64_t id : {2, 3}) {
        REQUIRE(pair.engine.Poll(&pair.completion));
        CHECK(pair.completion.round_id == id);
        CHECK(pair.completion.results[0].status == RoundStatus::kAborted);
      }
    }
  }

  TEST_CASE("a flag of rounds is malformed in a call") {
    Pair pair;
    REQUIRE(pair.engine.Call(CoinsCall{kSequence0, {}}, 1) == PushResult::kOk);
    pair.entry(0)->flags = 1;
    MakeReady(pair, 1);
    REQUIRE(pair.daemon.Take(&pair.copy, 2));
    CHECK(pair.copy.malformed());
  }

  TEST_CASE("the stream finds the completion as soon as it goes on") {
    Pair pair;
    REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
    MakeReady(pair, 1);
    bool found = false;
    std::thread stream([&] {
      while (!IsReleased(*WordsOf(pair, 1), 1)) std::this_thread::yield();
      found = pair.engine.HasCompletion();
    });
    REQUIRE(TakeAndAnswer(&pair));
    stream.join();
    CHECK(found);
  }
}

}  // namespace
}  // namespace specd
