#include "daemon/text/text_streams.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ipc/include/specd/specd.h"
#include "tests/daemon/text/text_streams_fixture.h"

namespace specd {
namespace {

using Fixture = TextStreamsFixture;

TEST_SUITE("unit") {
  TEST_CASE("text comes with spans that mark accepted drafts and with offsets that add up") {
    Fixture f;
    f.Open(1);
    f.Tokens(1, 0, {0, 1, 2}, 2);
    f.Tokens(1, 3, {3}, 0);
    f.End(1, 4, SPECD_FINISH_LENGTH);
    REQUIRE(f.texts.size() == 4);
    CHECK(f.texts[0].kind == TextEventKind::kOpen);
    CHECK(f.texts[1].text == "abc");
    REQUIRE(f.texts[1].spans.size() == 2);
    CHECK(f.texts[1].spans[0].size_bytes == 2);
    CHECK(f.texts[1].spans[0].accepted);
    CHECK_FALSE(f.texts[1].spans[1].accepted);
    CHECK(f.texts[2].byte_offset == 3);
    CHECK(f.texts[2].token_offset == 3);
    CHECK(f.texts[2].tokens == 4);
    CHECK(f.texts[3].kind == TextEventKind::kEnd);
    CHECK(f.texts[3].finish_reason == SPECD_FINISH_LENGTH);
    CHECK(f.texts[3].tokens == 4);
    CHECK(f.texts[3].accepted == 2);
    CHECK(f.texts[3].rounds == 2);
    CHECK(f.streams.num_live() == 0);
  }

  TEST_CASE("the end has the sum of the logprobs of the tokens that its text has") {
    Fixture f;
    f.Open(1, {"cd"});
    f.Open(2);
    // A fork.
    f.Open(3, 10, {.request_id = "r3", .stop_strings = {"cd"}, .cumulative_logprob = -100});
    const TokenEvent first = {
        .stream = 3,
        .offset = 10,
        .what = RoundTokens{.ids = {0, 1, 2}, .logprobs = {-0.1, -0.2, -0.3}}};
    f.Apply(first);
    f.Apply(first);  // events that come twice count once
    f.Apply({.stream = 3,
             .offset = 13,
             .what = RoundTokens{.ids = {3, 4, 5}, .logprobs = {-4, -8, -16}}});
    CHECK(f.texts.back().kind == TextEventKind::kEnd);
    CHECK(f.texts.back().stop_string == "cd");
    CHECK(f.texts.back().tokens == 14);
    CHECK(f.texts.back().cumulative_logprob == -100 + -0.1 + -0.2 + -0.3 + -4);

    f.Tokens(2, 0, {0});
    f.End(2, 1, SPECD_FINISH_LENGTH);
    CHECK(std::isnan(f.texts.back().cumulative_logprob));
  }

  TEST_CASE("a stop string ends the text, asks for the abort, and late tokens are counted") {
    Fixture f;
    f.Open(1, {"cd"});
    f.Tokens(1, 0, {0, 1, 2});
    CHECK(f.Text(1) == "ab");  // "c" may begin the stop string
    f.Tokens(1, 3, {3, 4, 5}, 3);
    REQUIRE(f.aborts.size() == 1);
    CHECK(f.aborts[0].stream == 1);
    CHECK(f.aborts[0].kept_tokens == 4);
    CHECK(f.aborts[0].finish_reason == SPECD_FINISH_STOP);
    CHECK(f.Text(1) == "ab");
    const TextEvent& end = f.texts.back();
    CHECK(end.kind == TextEventKind::kEnd);
    CHECK(end.stop_string == "cd");
    CHECK(end.finish_reason == SPECD_FINISH_STOP);
    CHECK(end.tokens == 4);
    CHECK(end.late == 2);
    const size_t events = f.texts.size();
    f.Tokens(1, 6, {6, 7});  // these tokens were in flight
    f.End(1, 8, SPECD_FINISH_STOP);
    CHECK(f.texts.size() == events);
    CHECK(f.streams.meters().late_tokens.value() == 4);
    CHECK(f.streams.meters().overrun_rounds.value() == 1);
    // The last word follows the stream's end, and asks for nothing.
    REQUIRE(f.aborts.size() == 2);
    CHECK(f.aborts[1].stream == 1);
    CHECK(f.aborts[1].finish_reason == SPECD_FINISH_NONE);
  }

  TEST_CASE("the last word about a stream with stop strings, and no other") {
    Fixture f;
    f.Open(1, {"zz"});
    f.Open(2);
    for (const uint64_t stream : {1, 2}) f.Tokens(stream, 0, {0, 1, 2});
    CHECK(f.aborts.empty());
    for (const uint64_t stream : {2, 1}) f.End(stream, 3, SPECD_FINISH_LENGTH);
    REQUIRE(f.aborts.size() == 1);
    CHECK(f.aborts[0].stream == 1);
    CHECK(f.aborts[0].kept_tokens == 3);
    CHECK(f.aborts[0].finish_reason == SPECD_FINISH_NONE);
  }

  TEST_CASE("min_tokens counts the tokens before the stream's opening") {
    const struct {
      uint64_t offset;
      uint64_t kept_tokens;
    } cases[] = {{6, 11}, {8, 11}, {9, 12}, {20, 23}};
    for (const auto& c : cases) {
      Fixture f;
      f.Open(1, {"aaa"}, false, c.offset, 10);
      f.Tokens(1, c.offset, {0, 0, 0, 0, 0, 0});
      REQUIRE(f.aborts.size() == 1);
      CHECK(f.aborts[0].kept_tokens == c.kept_tokens);
    }
  }

  TEST_CASE("a stop string found in the last tokens still moves the engine's provisional end") {
    Fixture f;
    f.Open(1, {"bc"});
    f.Tokens(1, 0, {0, 1, 2, 3});
    f.End(1, 4, SPECD_FINISH_LENGTH);
    REQUIRE(f.aborts.size() == 2);
    CHECK(f.aborts[0].kept_tokens == 3);
    CHECK(f.aborts[0].finish_reason == SPECD_FINISH_STOP);
    CHECK(f.aborts[1].finish_reason == SPECD_FINISH_NONE);
    CHECK(f.texts.back().finish_reason == SPECD_FINISH_STOP);
    CHECK(f.Text(1) == "a");
  }

  TEST_CASE("the text of a stop id is withheld unless asked for, its id is counted") {
    Fixture f;
    f.Open(1);
    f.Open(2, {}, true);
    for (uint64_t stream : {1, 2}) {
      f.Tokens(stream, 0, {0, 1, 5}, 0, 5);
      f.End(stream, 3, SPECD_FINISH_STOP, 5);
    }
    CHECK(f.Text(1) == "ab");
    CHECK(f.Text(2) == "abf");
    CHECK(f.texts.back().tokens == 3);
    CHECK(f.texts.back().stop_token == 5);
  }

  TEST_CASE("only the token that ended the stream is withheld, not the same id before it") {
    Fixture f;
    f.Open(1);
    f.Tokens(1, 0, {TextStreamsFixture::kEos, 0, 5, 5}, 0, 5);
    f.End(1, 4, SPECD_FINISH_STOP, 5);
    CHECK(f.Text(1) == "af");
  }

  TEST_CASE("tokens that come twice are dropped") {
    Fixture f;
    f.Open(1);
    f.Tokens(1, 0, {0, 1, 2}, 3);
    f.Tokens(1, 0, {0, 1, 2}, 3);
    f.Tokens(1, 1, {1, 2, 3, 4}, 2);
    f.Open(1);
    f.End(1, 5, SPECD_FINISH_LENGTH);
    CHECK(f.Text(1) == "abcde");
    CHECK(f.texts.back().accepted == 3);
    CHECK(f.texts.back().rounds == 2);
  }

  TEST_CASE("missing tokens end the text with an error, and the sequence if it has stop strings") {
    Fixture f;
    f.Open(1, {"z"});
    f.Open(2);
    // Bug: a stream without stop strings was aborted too, although its ids need no text.
    f.Open(3);
    f.Tokens(1, 0, {0});
    f.Tokens(2, 0, {0});
    f.Tokens(3, 1, {0});
    CHECK(f.texts.back().finish_reason == SPECD_FINISH_ERROR);
    CHECK(f.aborts.empty());
    f.Tokens(1, 3, {3});
    CHECK(f.texts.back().kind == TextEventKind::kEnd);
    CHECK(f.texts.back().finish_reason == SPECD_FINISH_ERROR);
    REQUIRE(f.aborts.size() == 1);
    CHECK(f.aborts[0].stream == 1);
    CHECK(f.aborts[0].finish_reason == SPECD_FINISH_ABORT);
    CHECK(f.aborts[0].kept_tokens == 1);
    CHECK(f.streams.meters().broken_streams.value() == 2);
    f.Tokens(2, 1, {1});
    CHECK(f.Text(2) == "ab");  // the other stream goes on
    CHECK(f.streams.num_live() == 1);
  }

  TEST_CASE(
      "a stream that begins behind tokens it had before has no gap, and its text begins at 0") {
    // Forked, or opened with outputs.
    Fixture f;
    f.Open(1, {}, false, 7);
    f.Tokens(1, 7, {0, 1});
    f.End(1, 9, SPECD_FINISH_LENGTH);
    REQUIRE(f.texts.size() == 3);
    CHECK(f.texts[0].token_offset == 7);
    CHECK(f.texts[1].text == "ab");
    CHECK(f.texts[1].token_offset == 7);
    CHECK(f.texts[1].tokens == 9);
    CHECK(f.texts[1].byte_offset == 0);
    CHECK(f.texts[2].finish_reason == SPECD_FINISH_LENGTH);
    CHECK(f.aborts.empty());
  }

  TEST_CASE("an end whose last tokens are missing is a gap too") {
    Fixture f;
    f.Open(1);
    f.Tokens(1, 0, {0});
    f.End(1, 3, SPECD_FINISH_LENGTH);
    CHECK(f.texts.back().finish_reason == SPECD_FINISH_ERROR);
  }

  TEST_CASE("events of a stream whose opening was missed are counted, not guessed at") {
    Fixture f;
    f.Tokens(9, 0, {0});
    f.End(9, 1, SPECD_FINISH_LENGTH);
    CHECK(f.texts.empty());
    CHECK(f.streams.meters().unknown_events.value() == 2);
  }

  TEST_CASE(
      "stop strings that no daemon would have let through end their stream, not the process") {
    Fixture f;
    f.Open(1, {"\xff"});
    REQUIRE(f.texts.size() == 2);
    CHECK(f.texts[0].kind == TextEventKind::kOpen);
    CHECK(f.texts[1].finish_reason == SPECD_FINISH_ERROR);
    REQUIRE(f.aborts.size() == 1);
    CHECK(f.aborts[0].finish_reason == SPECD_FINISH_ABORT);
    CHECK(f.streams.num_live() == 0);
    f.Tokens(1, 0, {0});
    CHECK(f.Text(1).empty());
  }

  TEST_CASE("streams are forgotten without a word, and their numbers are used again") {
    Fixture f;
    f.Open(1, {"b"});
    f.Open(2, {"z"});
    f.Tokens(1, 0, {0, 1});  // ended by its stop string
    f.texts.clear();
    f.aborts.clear();
    f.streams.Forget();
    CHECK(f.texts.empty());
    CHECK(f.aborts.empty());
    CHECK(f.streams.num_live() == 0);
    CHECK_FALSE(f.streams.Has(2));
    f.Open(2);
    f.Tokens(2, 0, {0});
    CHECK(f.Text(2) == "a");
  }

  TEST_CASE("what comes after a stream's end belongs to no stream") {
    Fixture f;
    f.Open(1);
    f.Tokens(1, 0, {0});
    f.End(1, 1, SPECD_FINISH_LENGTH);
    f.Tokens(1, 1, {1});
    CHECK(f.streams.meters().unknown_events.value() == 1);
    CHECK(f.streams.meters().late_tokens.value() == 0);
    CHECK(f.Text(1) == "a");
  }

  TEST_CASE("a gap lets go what was held back for a stop string, and counts what it drops") {
    Fixture f;
    f.Open(1, {"bc"});
    f.Tokens(1, 0, {0, 1});
    CHECK(f.Text(1) == "a");
    f.Tokens(1, 5, {3, 4});
    CHECK(f.Text(1) == "ab");
    CHECK(f.texts.back().kind == TextEventKind::kEnd);
    CHECK(f.texts.back().late == 2);
    CHECK(f.texts.back().tokens == 2);
  }

  TEST_CASE("a token that only begins a character makes no event; the next one counts both") {
    Fixture f;
    f.Open(1);
    f.Tokens(1, 0, {0});
    const size_t events = f.texts.size();
    f.Tokens(1, 1, {27});
    CHECK(f.texts.size() == events);
    f.Tokens(1, 2, {28});
    REQUIRE(f.texts.size() == events + 1);
    CHECK(f.texts.back().text == "\xe2\x82\xac");
    CHECK(f.texts.back().tokens == 3);
  }

  TEST_CASE("special tokens are shown to whoever asks for them, and to nobody else") {
    Fixture f;
    f.Open(1);
    f.Open(2, 0, {.request_id = "r2", .skip_special_tokens = false});
    for (uint64_t stream : {1, 2}) f.Tokens(stream, 0, {0, TextStreamsFixture::kEos, 1});
    CHECK(f.Text(1) == "ab");
    CHECK(f.Text(2) == "a<eos>b");
  }
}

}  // namespace
}  // namespace specd
