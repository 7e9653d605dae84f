// TextReader gives every byte of every stream once and in order, whatever is lost and whoever dies.
#include "daemon/reader/text_reader.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/reader/reader_world.h"

namespace specd {

TEST_SUITE("unit") {
  TEST_CASE("every byte comes once and in order, whatever is lost and whoever is replaced") {
    int num_asks = 0;
    for (uint32_t seed = 0; seed < 300; ++seed) {
      CAPTURE(seed);
      ReaderWorld world(seed);
      world.Run(400);
      world.Check();
      num_asks += world.num_asks();
    }
    CHECK(num_asks > 10'000);
  }

  TEST_CASE("a stream that no engine opens again is lost by name, after the daemon's heartbeats") {
    TextReader reader;
    std::vector<ReadEvent> out;
    const auto answer_all = [&](uint64_t epoch) {
      while (reader.ask() != nullptr) {
        REQUIRE(reader.Answered(TextAnswer{.epoch = epoch}, &out).ok());
      }
    };
    reader.Hear(Heartbeat{.epoch = 1, .seq = 0, .instance = 1}, &out);
    CHECK_FALSE(reader.is_current());
    answer_all(1);
    CHECK(reader.is_current());
    TextEvent open = EventOf(TextEventKind::kOpen, 9, "r");
    open.epoch = open.seq = 1;
    reader.Hear(open, &out);
    for (int i = 0; i <= 50; ++i) {
      reader.Hear(Heartbeat{.epoch = 2, .seq = 0, .instance = 2}, &out);
      answer_all(2);
    }
    REQUIRE(out.size() == 2);
    CHECK(out[1].event.request_id == "r");
    CHECK(out[1].event.stream == out[0].event.stream);
    CHECK(out[1].lost == "the daemon has ended, and its streams with it");

    // Bug: the engine came later, and its stream was kept from the reader for ever.
    open.epoch = 2;
    open.resumed = true;
    reader.Hear(open, &out);
    TextEvent text = EventOf(TextEventKind::kText, 9, "r");
    text.epoch = text.seq = 2;
    text.text = "whole";
    text.spans = {{5, false}};
    text.tokens = 1;
    reader.Hear(text, &out);
    REQUIRE(out.size() == 4);
    CHECK(out[2].event.kind == TextEventKind::kOpen);
    CHECK(out[2].event.stream != out[1].event.stream);
    CHECK(out[3].event.stream == out[2].event.stream);
    CHECK(out[3].event.text == "whole");
  }

  TEST_CASE("a wrong checksum, and a gap that the text side has too, lose the stream by name") {
    for (const bool is_gap : {false, true}) {
      TextReader reader;
      std::vector<ReadEvent> out;
      reader.Hear(Heartbeat{.epoch = 1, .seq = 0, .instance = 1}, &out);
      const TextEvent open = EventOf(TextEventKind::kOpen, 4, "r");
      TextEvent more = EventOf(TextEventKind::kEnd, 4, "r");
      more.byte_offset = is_gap ? 2 : 0;
      more.text = "text";
      more.spans = {{4, false}};
      more.finish_reason = SPECD_FINISH_STOP;
      more.checksum = ChecksumOf("test");
      REQUIRE(reader.Answered(TextAnswer{.epoch = 1, .events = {open, more}}, &out).ok());
      REQUIRE(out.size() == 2);
      CHECK(out[1].lost == (is_gap ? "the text side has not kept what is missing"
                                   : "the checksum of the stream is another one"));
    }
  }

  TEST_CASE("a successor that counts as many is noticed, and a stream that has ended stays ended") {
    TextReader reader;
    std::vector<ReadEvent> out;
    const TextEvent open = EventOf(TextEventKind::kOpen, 4, "r");
    TextEvent end = EventOf(TextEventKind::kEnd, 4, "r");
    end.finish_reason = SPECD_FINISH_STOP;
    end.checksum = ChecksumOf("");
    reader.Hear(Heartbeat{.epoch = 1, .seq = 2, .instance = 1}, &out);
    REQUIRE(reader.Answered(TextAnswer{.epoch = 1, .events = {open, end}}, &out).ok());
    REQUIRE(reader.Answered(TextAnswer{.epoch = 1}, &out).ok());
    REQUIRE(out.size() == 2);
    reader.Hear(Heartbeat{.epoch = 1, .seq = 2, .instance = 1}, &out);
    CHECK(reader.ask() == nullptr);
    reader.Hear(Heartbeat{.epoch = 1, .seq = 2, .instance = 2}, &out);
    CHECK(reader.ask() != nullptr);

    // The engine brings the sequence to the next daemon, because it had not heard of the end.
    TextEvent resumed = EventOf(TextEventKind::kOpen, 1, "r");
    resumed.resumed = true;
    reader.Hear(Heartbeat{.epoch = 2, .seq = 0, .instance = 3}, &out);
    REQUIRE(reader.Answered(TextAnswer{.epoch = 2, .events = {resumed}}, &out).ok());
    CHECK(out.size() == 2);
  }

  TEST_CASE("an aborted text may end before what came of it, and no other text may") {
    for (const uint32_t finish : {SPECD_FINISH_ABORT, SPECD_FINISH_STOP}) {
      CAPTURE(finish);
      TextReader reader;
      std::vector<ReadEvent> out;
      TextEvent open = EventOf(TextEventKind::kOpen, 4, "r");
      TextEvent text = EventOf(TextEventKind::kText, 4, "r");
      text.text = "hello";
      text.spans = {{5, false}};
      reader.Hear(Heartbeat{.epoch = 1, .seq = 0, .instance = 1}, &out);
      REQUIRE(reader.Answered(TextAnswer{.epoch = 1, .events = {open, text}}, &out).ok());
      // The engine never got the round of "lo", and has brought what it knows to the next daemon.
      open.stream = 1;
      open.resumed = true;
      TextEvent end = EventOf(TextEventKind::kEnd, 1, "r");
      end.byte_offset = 3;
      end.finish_reason = finish;
      end.checksum = ChecksumOf("hel");
      reader.Hear(Heartbeat{.epoch = 2, .seq = 0, .instance = 2}, &out);
      REQUIRE(reader.Answered(TextAnswer{.epoch = 2, .events = {open, end}}, &out).ok());
      REQUIRE(out.size() == 3);
      CHECK(out[2].event.request_id == "r");
      CHECK(out[2].event.byte_offset == 5);
      CHECK(out[2].event.text.empty());
      CHECK(out[2].lost ==
            (finish == SPECD_FINISH_ABORT ? "" : "the checksum of the stream is another one"));
    }
  }

  TEST_CASE("a refusal counts only if the daemon is still the same") {
    for (const uint64_t epoch : {uint64_t{1}, uint64_t{2}}) {
      CAPTURE(epoch);
      TextReader reader;
      std::vector<ReadEvent> out;
      reader.Hear(Heartbeat{.epoch = 1, .seq = 0, .instance = 1}, &out);
      const TextEvent open = EventOf(TextEventKind::kOpen, 4, "r");
      REQUIRE(reader.Answered(TextAnswer{.epoch = 1, .events = {open}}, &out).ok());
      REQUIRE(reader.Answered(TextAnswer{.epoch = 1}, &out).ok());
      reader.Hear(Heartbeat{.epoch = 1, .seq = 7, .instance = 1}, &out);
      REQUIRE(reader.ask()->kind == AskKind::kFrom);
      REQUIRE(reader.Answered(absl::NotFoundError("it is not kept"), &out).ok());
      REQUIRE(reader.Answered(TextAnswer{.epoch = epoch}, &out).ok());
      REQUIRE(out.size() == (epoch == 1 ? 2 : 1));
      if (epoch == 1) CHECK(out[1].lost == "it is not kept");
    }
  }
}

}  // namespace specd
