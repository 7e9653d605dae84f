// A text worker that has missed events asks its daemon for them.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/daemon/text/text_worker_fixture.h"

namespace specd {
namespace {

using Fixture = TextWorkerFixture;

TokenEvent ForkOf(uint64_t source, uint64_t stream, uint64_t offset) {
  TokenEvent fork = Fixture::Open(stream);
  fork.opening()->forked_from = source;
  fork.offset = offset;
  return fork;
}

TEST_SUITE("unit") {
  TEST_CASE("a lost batch is asked for, and its streams go on") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {f.Open(1), f.Tokens(1, 0, {0, 1})});
    f.Texts();
    f.memory.Keep(Fixture::kEpoch, 2,
                  {f.Tokens(1, 2, {2}), f.Open(3), f.Tokens(3, 0, {4}), f.Open(4), f.End(4, 0)});
    f.HearBatch(3, {f.Tokens(1, 3, {3}), f.Open(2)});
    const std::vector<TextEvent> texts = f.Texts();
    std::string text;
    for (const TextEvent& event : texts) {
      if (event.stream == 1) text += event.text;
      CHECK(event.kind != TextEventKind::kEnd);
      CHECK(event.stream != 4);
    }
    CHECK(text == "cd");
    CHECK(f.Aborts().empty());
    CHECK(f.worker->meters().broken_streams.value() == 0);
    // Bug: the text of stream 4, an opening and an end, was kept without a number. A reader of its
    // name saw no loss, and waited for ever.
    f.Tick();
    CHECK(f.LastSeq() == texts.back().seq + 2);
    // What was heard again is not given out again.
    f.HearBatch(4, {f.Tokens(2, 0, {0}), f.Tokens(3, 1, {5})});
    CHECK(f.Texts().size() == 2);
    CHECK(f.worker->meters().unknown_events.value() == 0);
  }

  TEST_CASE("the end of a stream that was lost is asked for") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {f.Open(1), f.Tokens(1, 0, {0})});
    f.Texts();
    f.memory.Keep(Fixture::kEpoch, 2, {f.Tokens(1, 1, {1}), f.End(1, 2)});
    f.HearHeartbeat(Fixture::kEpoch, 2);
    const std::vector<TextEvent> texts = f.Texts();
    REQUIRE(texts.size() == 2);
    CHECK(texts[0].text == "b");
    CHECK(texts[1].kind == TextEventKind::kEnd);
    CHECK(texts[1].finish_reason == SPECD_FINISH_LENGTH);
    // FNV-1a of "ab", as published with the algorithm.
    CHECK(texts[1].checksum == 0x089c4407b545986aU);
  }

  TEST_CASE("a worker that starts late, or takes another one's place, has every text") {
    Fixture f;
    f.memory.Keep(Fixture::kEpoch, 3,
                  {f.Open(1), f.Tokens(1, 0, {0, 1}), f.Open(2), f.Tokens(2, 0, {2}), f.End(2, 1)});
    f.Attach(3);
    f.HearBatch(4, {f.Tokens(1, 2, {3})});
    std::string text;
    for (const TextEvent& event : f.Texts()) {
      CHECK(event.stream == 1);
      text += event.text;
    }
    CHECK(text == "abd");
  }

  TEST_CASE("a stream that is over before the worker has asked for it is published once") {
    Fixture f;
    const std::vector<TokenEvent> whole = {f.Open(1), f.Tokens(1, 0, {0, 1}), f.End(1, 2)};
    f.Attach();
    f.HearHeartbeat(Fixture::kEpoch + 1, 0);  // the worker asks again
    f.memory.Mute(true);
    f.memory.Keep(Fixture::kEpoch + 1, 1, {f.Open(2)});
    f.HearHeartbeat(Fixture::kEpoch + 1, 1);
    f.memory.Mute(false);
    f.HearBatch(2, whole, Fixture::kEpoch + 1);
    f.HearBatch(3, {f.Tokens(2, 0, {2})}, Fixture::kEpoch + 1);
    std::string text;
    for (const TextEvent& event : f.Texts()) text += event.text;
    CHECK(text == "abc");
  }

  TEST_CASE("a text that was kept while an ask failed is published when its events come") {
    // Bug: the second try forgot which texts were not published yet, and dropped their events.
    Fixture f;
    f.Attach();
    f.HearBatch(1, {f.Open(1)});
    f.memory.Forget();
    f.memory.Keep(Fixture::kEpoch, 3, {f.Open(2), f.Tokens(2, 0, {0}), f.End(2, 1)});
    f.memory.AnswerOnly(2);  // what has become of stream 1 is not answered
    f.HearHeartbeat(Fixture::kEpoch, 2);
    f.Texts();
    f.memory.AnswerOnly(100);
    f.HearBatch(3, {f.Open(2), f.Tokens(2, 0, {0}), f.End(2, 1)});
    const std::vector<TextEvent> texts = f.Texts();
    std::string text;
    for (const TextEvent& event : texts) {
      if (event.stream == 2) text += event.text;
    }
    CHECK(text == "a");
    f.Tick();
    CHECK(f.LastSeq() == texts.back().seq);  // nothing is lost
  }

  TEST_CASE("a stream whose end was asked for is published once, although it is not kept") {
    // Bug: with --keep_ended=0 the events of the answers were published again when they were heard.
    Fixture f({.ended_ns = 0});
    f.Attach();
    f.memory.Keep(Fixture::kEpoch, 2, {f.Open(1), f.Tokens(1, 0, {0})});
    f.memory.KeepAfter(1, {f.End(1, 1)});
    f.HearHeartbeat(Fixture::kEpoch, 1);
    CHECK(f.Texts().size() == 3);
    f.Tick();
    f.HearBatch(2, {f.Open(1), f.Tokens(1, 0, {0}), f.End(1, 1)});
    CHECK(f.Texts().empty());
  }

  TEST_CASE("a quiet text whose events are heard in part counts as lost") {
    // Bug: its end alone took the number away, and readers of its name waited for ever.
    Fixture f;
    f.Attach();
    f.memory.Keep(Fixture::kEpoch, 2, {f.Open(4), f.Tokens(4, 0, {0})});
    f.HearBatch(3, {f.End(4, 1)});
    CHECK(f.Texts().empty());
    CHECK(f.worker->meters().unknown_events.value() == 0);
    f.Tick();
    CHECK(f.LastSeq() == 3);
  }

  TEST_CASE("a quiet fork counts as lost where its source has ended") {
    // Bug: the daemon was asked for it, and the answer dropped as a text that was given out.
    Fixture f;
    f.Attach();
    f.HearBatch(1, {f.Open(1), f.Tokens(1, 0, {0})});
    f.Texts();
    f.memory.Keep(Fixture::kEpoch, 2, {f.Tokens(1, 1, {1})});
    f.HearBatch(3, {ForkOf(1, 2, 2), f.End(1, 2), f.Tokens(2, 2, {2}), f.End(2, 3)});
    const std::vector<TextEvent> texts = f.Texts();
    REQUIRE_FALSE(texts.empty());
    for (const TextEvent& event : texts) CHECK(event.stream == 1);
    f.Tick();
    CHECK(f.LastSeq() == texts.back().seq + 3);  // an opening, a letter, an end
  }

  TEST_CASE("a fork that an answer brought is not asked for again, and forgotten with its end") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {f.Open(1)});
    f.memory.Keep(Fixture::kEpoch, 3, {f.Tokens(1, 0, {0}), ForkOf(1, 2, 1), f.End(1, 1)});
    f.HearHeartbeat(Fixture::kEpoch, 2);
    f.Texts();
    f.memory.Mute(true);
    f.HearBatch(3, {ForkOf(1, 2, 1), f.End(1, 1), f.Tokens(2, 1, {1})});
    f.HearBatch(4, {f.End(2, 2)});
    std::string text;
    for (const TextEvent& event : f.Texts()) text += event.text;
    CHECK(text == "b");
    CHECK(f.worker->meters().unknown_events.value() == 0);
    f.HearBatch(5, {f.Tokens(1, 1, {1})});
    CHECK(f.worker->meters().unknown_events.value() == 1);
  }

  TEST_CASE("while the daemon does not answer nothing ends, and nobody is told that all is well") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {f.Open(1), f.Tokens(1, 0, {0})});
    f.Texts();
    f.SignsOfLife();
    f.memory.Mute(true);
    f.memory.Keep(Fixture::kEpoch, 2, {f.Tokens(1, 1, {1})});
    f.HearHeartbeat(Fixture::kEpoch, 2);
    f.HearBatch(3, {f.Tokens(1, 2, {2})});
    f.Tick();
    CHECK(f.Texts().empty());
    CHECK(f.Aborts().empty());
    CHECK(f.SignsOfLife().empty());
    f.memory.Mute(false);
    f.HearHeartbeat(Fixture::kEpoch, 3);
    std::string text;
    for (const TextEvent& event : f.Texts()) text += event.text;
    CHECK(text == "bc");
    f.Tick();
    CHECK(f.SignsOfLife().size() == 1);
  }

  TEST_CASE("a stream that the daemon has not kept ends by an error") {
    Fixture f;
    f.Attach();
    f.HearBatch(1, {f.Open(1, {"z"})});
    f.Texts();
    f.memory.Forget();
    f.HearHeartbeat(Fixture::kEpoch, 2);
    f.CheckBroken();
    const std::vector<AbortRequest> aborts = f.Aborts();
    REQUIRE(aborts.size() == 1);
    CHECK(aborts[0].epoch == Fixture::kEpoch);
    CHECK(aborts[0].stream == 1);
    CHECK(aborts[0].finish_reason == SPECD_FINISH_ABORT);
  }
}

}  // namespace
}  // namespace specd
