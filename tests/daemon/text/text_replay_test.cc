// A text side that begins late makes the text that one which was there has made: from the ids that
// the daemon has kept, with forks, stop strings and code points that are under way.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "daemon/text/kept_streams.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/text/text_streams_fixture.h"

namespace specd {
namespace {

// What readers have of a stream.
struct Outcome {
  std::string text;
  std::string stop;
  uint64_t tokens = 0;
  uint32_t finish = 0;
  uint64_t checksum = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::map<uint64_t, Outcome> Outcomes(const std::vector<TextEvent>& texts) {
  std::map<uint64_t, Outcome> outcomes;
  for (const TextEvent& event : texts) {
    Outcome& outcome = outcomes[event.stream];
    if (event.kind != TextEventKind::kOpen) CHECK(event.byte_offset == outcome.text.size());
    outcome.text += event.text;
    if (event.kind != TextEventKind::kOpen) outcome.tokens = event.tokens;
    if (event.kind != TextEventKind::kEnd) continue;
    outcome.stop = event.stop_string;
    outcome.finish = event.finish_reason;
    outcome.checksum = event.checksum;
  }
  return outcomes;
}

// A daemon's publisher, and a text side that hears all of it.
struct Daemon {
  void Publish(TokenEvent event) {
    tokens[event.stream] = event.offset + event.num_ids();
    kept.Take(&event, 0);
    heard.streams.Apply(event, &heard.texts, &heard.aborts);
  }
  template <class What>
  TokenEvent Event(uint64_t stream, What what) {
    return {.stream = stream, .offset = tokens[stream], .what = std::move(what)};
  }

  KeptStreams kept{{}};
  TextStreamsFixture heard;
  std::map<uint64_t, uint64_t> tokens;
};

// The daemon's answers of these kinds, applied to another text side.
void Replay(const Daemon& daemon, TextStreamsFixture* late) {
  for (const AskKind kind : {AskKind::kStreams, AskKind::kEnded}) {
    const auto answer = daemon.kept.Answer({.kind = kind});
    REQUIRE(answer.ok());
    for (const TokenEvent& event : answer->events) {
      late->streams.Apply(event, &late->texts, &late->aborts);
    }
  }
}

TEST_SUITE("unit") {
  TEST_CASE("replay: a late text side has the texts, stops and checksums of one that heard all") {
    std::mt19937 random(7);
    const auto draw = [&random](uint32_t size) { return random() % size; };
    size_t num_forks = 0;
    size_t num_stops = 0;
    for (int trial = 0; trial < 300; ++trial) {
      CAPTURE(trial);
      Daemon daemon;
      StreamOpening open = {.request_id = "r1"};
      if (draw(2) == 0) open.stop_strings = {"ab", "b€a"};
      open.include_stop = draw(2) == 0;
      open.min_tokens = draw(6);
      if (draw(2) == 0) open.prompt_tail = {27};  // the prompt ends inside a code point
      daemon.Publish(daemon.Event(1, open));
      uint64_t num_streams = 1;
      for (int step = 0; step < 12; ++step) {
        const uint64_t stream = 1 + draw(static_cast<uint32_t>(num_streams));
        if (draw(5) == 0) {
          StreamOpening fork = open;
          fork.request_id = "r" + std::to_string(++num_streams);
          fork.forked_from = stream;
          fork.prompt_tail = {};
          daemon.tokens[num_streams] = daemon.tokens[stream];
          daemon.Publish(daemon.Event(num_streams, std::move(fork)));
          ++num_forks;
          continue;
        }
        RoundTokens tokens;
        for (uint32_t i = draw(4) + 1; i > 0; --i) {
          constexpr TokenId kIds[] = {0, 1, 2, 27, 28};
          tokens.ids.push_back(kIds[draw(5)]);
        }
        tokens.accepted = draw(static_cast<uint32_t>(tokens.ids.size()));
        daemon.Publish(daemon.Event(stream, std::move(tokens)));
      }
      TextStreamsFixture late;
      Replay(daemon, &late);
      // One after the other ends, before or after the late one has begun.
      for (uint64_t stream = 1; stream <= num_streams; ++stream) {
        const TokenEvent end =
            daemon.Event(stream, StreamEnd{.finish_reason = SPECD_FINISH_LENGTH});
        daemon.Publish(end);
        late.streams.Apply(end, &late.texts, &late.aborts);
      }
      TextStreamsFixture after;
      Replay(daemon, &after);
      const std::map<uint64_t, Outcome> expected = Outcomes(daemon.heard.texts);
      CHECK(Outcomes(late.texts) == expected);
      CHECK(Outcomes(after.texts) == expected);
      for (const auto& [stream, outcome] : expected) num_stops += outcome.stop.empty() ? 0 : 1;
    }
    CHECK(num_forks > 300);
    CHECK(num_stops > 100);
  }
}

}  // namespace
}  // namespace specd
