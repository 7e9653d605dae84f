// The words that streams wait for: who decides, what holds a round, what a late daemon can still
// do. Numbers and values are the ones of docs/PROTOCOL.md.
#include "ipc/round_words.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "ipc/include/specd/specd.h"
#include "tests/ipc/ipc_test_support.h"

namespace specd {
namespace {

using test::kSequence0;
using test::Pair;
using test::TwoTokens;

RoundWords* WordsOf(const Pair& pair, uint64_t number) { return pair.segment.round_words(number); }

PushResult SubmitOnStream(Pair* pair, uint64_t round_id) {
  const test::DraftBuffers draft = TwoTokens();
  const EngineDraft drafts[] = {draft.View(kSequence0), draft.View(kSequence0 + 1)};
  pair->engine.ArmWords();
  return pair->engine.SubmitOnStream(round_id, drafts, 5);
}

void MakeReady(const Pair& pair, uint64_t number) { WordsOf(pair, number)->ready.store(number); }

// Takes a round and answers it as the session does; false where there is none.
bool TakeAndAnswer(Pair* pair) {
  if (!pair->daemon.Take(&pair->copy, 2)) return false;
  pair->daemon.Claim(pair->copy);
  pair->CompleteEmpty();
  return true;
}

// As the library does for a stream that has waited long enough.
void ReleaseStream(const Pair& pair, uint64_t number) {
  Decide(WordsOf(pair, number), number, RoundVerdict::kAborted);
  Release(WordsOf(pair, number), number);
}

TEST_SUITE("unit") {
  TEST_CASE("round words: whoever decides first decides for good") {
    RoundWords words{};
    CHECK(Decide(&words, 7, RoundVerdict::kAborted) == RoundVerdict::kAborted);
    CHECK(Decide(&words, 7, RoundVerdict::kAnswered) == RoundVerdict::kAborted);
    CHECK(words.status.load() == (7 << 8 | 1));
    CHECK(IsAborted(words, 7));
    CHECK_FALSE(IsAborted(words, 3));
    CHECK(Decide(&words, 11, RoundVerdict::kAnswered) == RoundVerdict::kAnswered);
    CHECK(Decide(&words, 11, RoundVerdict::kAborted) == RoundVerdict::kAnswered);
    CHECK(words.status.load() == 11 << 8);
    CHECK(Decide(&words, 15, RoundVerdict::kFailed) == RoundVerdict::kFailed);
    CHECK(Decide(&words, 15, RoundVerdict::kAborted) == RoundVerdict::kFailed);
    CHECK_FALSE(IsAborted(words, 15));
    CHECK(words.status.load() == (15 << 8 | 2));
    // A number ahead of its time is nobody's: nothing is confirmed.
    CHECK(Decide(&words, 11, RoundVerdict::kAnswered) == RoundVerdict::kAborted);
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

  TEST_CASE("round words: of two threads that decide exactly one wins, and both know which") {
    for (uint64_t number = 1; number <= 2000; ++number) {
      RoundWords words{};
      RoundVerdict seen[2] = {};
      std::thread daemon([&] { seen[0] = Decide(&words, number, RoundVerdict::kAnswered); });
      seen[1] = Decide(&words, number, RoundVerdict::kAborted);
      daemon.join();
      REQUIRE(seen[0] == seen[1]);
      REQUIRE(words.status.load() == PackVerdict(number, seen[0]));
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

  TEST_CASE("words that an old round left do not make the next one of its slot ready") {
    // The first stream round of a slot may come after any number of others.
    Pair pair;
    WordsOf(pair, 1)->ready.store(1);
    REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
    CHECK(pair.daemon.IsHeld());
  }

  TEST_CASE("every way in which a round ends releases its stream") {
    Pair pair;
    SUBCASE("malformed") {
      REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
      pair.slot(0)->num_records = 99;
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
        CHECK(WordsOf(pair, number)->status.load() != PackVerdict(number, RoundVerdict::kAnswered));
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
        CHECK(pair.completion.results[0].status == SPECD_STATUS_ABORTED);
      }
    }
  }

  TEST_CASE("a flag of rounds is malformed in a call") {
    Pair pair;
    REQUIRE(pair.engine.Call(CoinsCall{kSequence0, {}}, 1) == PushResult::kOk);
    pair.slot(0)->flags = 1;
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

  TEST_CASE("an aborted round is answered at once, and its slot waits for the late daemon") {
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
      CHECK(pair.completion.results[i].status == SPECD_STATUS_ABORTED);
      CHECK(pair.completion.results[i].num_kept == 0);
    }
    // Once, and the others are not affected.
    CHECK_FALSE(pair.engine.Poll(&pair.completion));
    CHECK(pair.engine.in_flight());
    // The slot is in quarantine: the ring is as full as it was.
    CHECK(SubmitOnStream(&pair, 15) == PushResult::kFull);
    // The daemon wakes up, and is told that it was too late.
    CHECK_FALSE(pair.daemon.Claim(pair.copy));
    pair.CompleteEmpty();
    CHECK(WordsOf(pair, 1)->status.load() == (1 << 8 | 1));
    // Its completion is nobody's; the slot is free.
    CHECK_FALSE(pair.engine.HasCompletion());
    CHECK(SubmitOnStream(&pair, 15) == PushResult::kOk);
    MakeReady(pair, 2);
    REQUIRE(TakeAndAnswer(&pair));
    REQUIRE(pair.engine.Poll(&pair.completion));
    CHECK(pair.completion.round_id == 12);
    CHECK(pair.completion.results[0].status == SPECD_STATUS_OK);
  }

  TEST_CASE(
      "a slot's next round releases a stream that a daemon killed behind its completion left") {
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
    CHECK(pair.completion.results[0].status == SPECD_STATUS_ABORTED);
  }

  TEST_CASE("where all rounds were answered here, a free slot is what there is to wait for") {
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
    CHECK(pair.completion.results[0].status == SPECD_STATUS_OK);
    for (uint64_t id = 2; id <= 3; ++id) {
      REQUIRE(pair.engine.Poll(&pair.completion));
      CHECK(pair.completion.round_id == id);
      CHECK(pair.completion.results[0].status == SPECD_STATUS_ABORTED);
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

  // A round's words are also those of the round ring_depth later, which nobody has submitted.
  TEST_CASE("the end of a session leaves the verdict of an answered round to kernels") {
    for (const uint32_t ring_depth : {1u, 4u}) {
      CAPTURE(ring_depth);
      Pair pair({32000, 4, 8, 3, ring_depth, 2});
      REQUIRE(SubmitOnStream(&pair, 1) == PushResult::kOk);
      MakeReady(pair, 1);
      REQUIRE(TakeAndAnswer(&pair));
      pair.daemon.Abandon();
      CHECK(WordsOf(pair, 1)->status.load() == (1 << 8));
      CHECK(IsReleased(*WordsOf(pair, 1), 1));
      // What was submitted and not answered is aborted.
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
