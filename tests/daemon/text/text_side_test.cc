// The publisher and the side that makes text: a life that is watched, and ends that it moves.
#include <doctest/doctest.h>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/text/publisher_fixture.h"

namespace specd {
namespace {

// A sequence with a stop string that ended by its length, and the published batch with that end.
struct EndedByLength : PublisherFixture {
  EndedByLength() {
    SendAlive({kEpoch, 1});
    publisher->Step();
    sequence = OpenWithStop("r", 3);
    RunRound(sequence, Confirm(2, {1, 2, 5}));
    publisher->Step();
    batch = Receive();
    REQUIRE(batch.events.size() == 3);
  }

  SequenceHandle sequence = 0;
  TokenBatch batch;
};

TEST_SUITE("unit") {
  TEST_CASE("an end is final after the text side's last word, and not before") {
    PublisherFixture f;
    f.SendAlive({kEpoch, 1});
    f.publisher->Step();
    const auto is_final = [&f](SequenceHandle sequence) {
      const SequenceState state = f.session.engine->ReadState(SlotOf(sequence));
      return f.session.engine->IsFinal(SlotOf(sequence), state);
    };
    const auto end = [&f](SequenceHandle sequence) {
      REQUIRE(f.session.session->AbortSequence(sequence).ok());
      f.publisher->Step();
    };
    const SequenceHandle plain = f.session.Open("plain");
    CHECK_FALSE(is_final(plain));
    end(plain);
    CHECK(is_final(plain));  // nothing is looked for in its text
    REQUIRE(f.session.session->CloseSequence(plain).ok());
    f.Receive();
    const SequenceHandle same = f.OpenWithStop("same");
    const SequenceHandle moved = f.OpenWithStop("moved");
    const SequenceHandle unheard = f.OpenWithStop("unheard");
    f.publisher->Step();
    const TokenBatch openings = f.Receive();
    REQUIRE(openings.events.size() == 3);
    for (const SequenceHandle s : {same, moved}) f.RunRound(s, Confirm(2, {1, 2, 5}));
    for (const SequenceHandle s : {same, moved, unheard}) end(s);
    for (const SequenceHandle s : {same, moved, unheard}) CHECK_FALSE(is_final(s));
    f.SendAbort({kEpoch, openings.events[0].stream, 3, SPECD_FINISH_NONE});
    f.SendAbort({kEpoch, openings.events[1].stream, 2, SPECD_FINISH_STOP});
    f.publisher->Step();
    CHECK(is_final(same));
    CHECK(f.FinishOf(same) == SPECD_FINISH_ABORT);
    CHECK(is_final(moved));
    CHECK(f.FinishOf(moved) == SPECD_FINISH_STOP);
    CHECK(f.session.engine->ReadState(SlotOf(moved)).kept_tokens == 2);
    CHECK_FALSE(is_final(unheard));
    const SequenceHandle running = f.OpenWithStop("running");
    f.publisher->Step();
    f.SendAlive({kEpoch, 2});  // another text side, which asks for these streams
    f.publisher->Step();
    CHECK_FALSE(is_final(unheard));
    CHECK(f.FinishOf(running) == SPECD_FINISH_NONE);
    f.PassTime(f.kGraceNs);  // it is gone as well, and no other comes
    CHECK(is_final(unheard));
    CHECK(f.FinishOf(running) == SPECD_FINISH_ABORT);
    CHECK(is_final(running));
  }

  TEST_CASE("the text side counts as alive for three seconds after it last said so") {
    PublisherFixture f;
    CHECK_FALSE(f.publisher->TextSideAlive());
    f.SendAlive({kEpoch + 1, 5});  // this text side hears another daemon
    f.publisher->Step();
    CHECK_FALSE(f.publisher->TextSideAlive());
    f.SendAlive({kEpoch, 5});
    f.publisher->Step();
    CHECK(f.publisher->TextSideAlive());
    f.PassTime(2'999'999'999);
    CHECK(f.publisher->TextSideAlive());
    f.PassTime(1);
    CHECK_FALSE(f.publisher->TextSideAlive());
  }

  // Bug: after SIGSTOP of the daemon, or a pause of its machine, for more than three seconds, every
  // stream with stop strings was aborted, although the text side was there all the time.
  TEST_CASE("a pause of the daemon does not count against the text side") {
    PublisherFixture f;
    f.SendAlive({kEpoch, 5});
    f.publisher->Step();
    const SequenceHandle watched = f.OpenWithStop("watched");
    f.publisher->Step();
    f.session.clock.AdvanceNs(3'600'000'000'000);
    CHECK(f.publisher->TextSideAlive());  // an opening may ask before the publisher looks
    f.publisher->Step();
    CHECK(f.FinishOf(watched) == SPECD_FINISH_NONE);
    f.PassTime(2'000'000'000);  // the text side has time to say that it lives
    CHECK(f.FinishOf(watched) == SPECD_FINISH_NONE);
    CHECK(f.publisher->TextSideAlive());
    f.PassTime(f.kGraceNs);
    CHECK(f.FinishOf(watched) == SPECD_FINISH_ABORT);
  }

  TEST_CASE("streams with stop strings wait for another text side, and not for ever") {
    PublisherFixture f;
    f.SendAlive({kEpoch, 5});
    f.publisher->Step();
    const SequenceHandle plain = f.session.Open("plain");
    const SequenceHandle watched = f.OpenWithStop("watched");
    f.publisher->Step();
    f.SendAlive({kEpoch, 5});
    f.publisher->Step();
    CHECK(f.FinishOf(watched) == SPECD_FINISH_NONE);
    f.PassTime(f.kGraceNs - 100'000'000);
    CHECK_FALSE(f.publisher->TextSideAlive());
    CHECK(f.FinishOf(watched) == SPECD_FINISH_NONE);
    f.SendAlive({kEpoch, 6});  // the successor, which asks for the stream
    f.publisher->Step();
    CHECK(f.publisher->TextSideAlive());
    CHECK(f.FinishOf(watched) == SPECD_FINISH_NONE);
    f.PassTime(f.kGraceNs);
    CHECK(f.FinishOf(watched) == SPECD_FINISH_ABORT);
    CHECK(f.FinishOf(plain) == SPECD_FINISH_NONE);
  }

  TEST_CASE("a stream whose ids were not kept ends when its text side is replaced") {
    PublisherFixture f({.bytes_max = 0});
    f.SendAlive({kEpoch, 5});
    f.publisher->Step();
    const SequenceHandle watched = f.OpenWithStop("watched");
    f.publisher->Step();
    f.SendAlive({kEpoch, 6});
    f.publisher->Step();
    CHECK(f.FinishOf(watched) == SPECD_FINISH_ABORT);
  }

  TEST_CASE("a stop string found after the end was published still moves that end") {
    EndedByLength f;
    CHECK(f.batch.events[2].end()->finish_reason == SPECD_FINISH_LENGTH);
    f.SendAbort({kEpoch, f.batch.events[0].stream, 2, SPECD_FINISH_STOP});
    f.publisher->Step();
    CHECK(f.FinishOf(f.sequence) == SPECD_FINISH_STOP);
    CHECK(f.session.engine->ReadState(SlotOf(f.sequence)).kept_tokens == 2);
  }

  TEST_CASE("an end that was final moved when a text side that was given up spoke again") {
    EndedByLength f;
    f.PassTime(f.kGraceNs);
    const SequenceState final_state = f.session.engine->ReadState(SlotOf(f.sequence));
    CHECK(f.session.engine->IsFinal(SlotOf(f.sequence), final_state));
    CHECK(final_state.finish_reason == SPECD_FINISH_LENGTH);
    f.SendAbort({kEpoch, f.batch.events[0].stream, 2, SPECD_FINISH_STOP});
    f.publisher->Step();
    CHECK(f.session.engine->ReadState(SlotOf(f.sequence)) == final_state);
    CHECK(f.session.engine->IsFinal(SlotOf(f.sequence), final_state));
  }

  TEST_CASE("a stream with stop strings that opens while nobody looks for them is aborted") {
    PublisherFixture f;
    const SequenceHandle watched = f.OpenWithStop("watched");
    const SequenceHandle plain = f.session.Open("plain");
    f.publisher->Step();
    CHECK(f.FinishOf(watched) == SPECD_FINISH_ABORT);
    CHECK(f.FinishOf(plain) == SPECD_FINISH_NONE);
  }
}

}  // namespace
}  // namespace specd
