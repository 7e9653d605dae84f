// Events: what is published can be read by anybody, and what others publish cannot hurt.
#include "ipc/events/token_event.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <msgpack.hpp>
#include <string>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/ipc/events/event_bytes.h"
#include "tests/ipc/events/event_samples.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("what an opening says of the text before it is optional") {
    TokenBatch batch = SampleBatch();
    batch.events.resize(1);
    StreamOpening& open = *batch.events[0].opening();
    const auto has = [&batch](const std::string& key) {
      return Bytes(AppendTokenBatch, batch).find(key) != std::string::npos;
    };
    for (const char* key : {"forked_from", "prompt_tail", "output_tail"}) CHECK_FALSE(has(key));
    open.forked_from = 3;
    open.profile = "m";
    CHECK(has("forked_from"));
    CHECK_FALSE(has("prompt_tail"));
    open.prompt_tail = {50256, 0};
    open.output_tail.assign(kOutputTailMax, 7);
    absl::StatusOr<TokenBatch> read = DecodeTokenBatch(Bytes(AppendTokenBatch, batch));
    REQUIRE(read.ok());
    CHECK(read->events[0].opening()->forked_from == 3);
    CHECK(read->events[0].opening()->profile == "m");
    CHECK(read->events[0].opening()->prompt_tail == open.prompt_tail);
    CHECK(read->events[0].opening()->output_tail == open.output_tail);
    CHECK(read->events[0].opening()->min_tokens == 9);
    open.output_tail.push_back(7);
    CHECK_FALSE(DecodeTokenBatch(Bytes(AppendTokenBatch, batch)).ok());
    open.output_tail.clear();
    open.prompt_tail.assign(kPromptTailMax + 1, 7);
    CHECK_FALSE(DecodeTokenBatch(Bytes(AppendTokenBatch, batch)).ok());
  }

  TEST_CASE("patterns and the state of a thought survive the way, and are left out if empty") {
    TokenBatch batch = SampleBatch();
    batch.events.resize(1);
    StreamOpening& open = *batch.events[0].opening();
    for (const char* key : {"stop_regex", "reasoning_"}) {
      CHECK(Bytes(AppendTokenBatch, batch).find(key) == std::string::npos);
    }
    open.stop_regex = {"[0-9]{3}", "\xc3\xa4"};
    open.reasoning_end = "</think>";
    open.reasoning_progress = 7;
    open.reasoning_tokens = 41;
    const absl::StatusOr<TokenBatch> read = DecodeTokenBatch(Bytes(AppendTokenBatch, batch));
    REQUIRE(read.ok());
    CHECK(read->events[0].opening()->stop_regex == open.stop_regex);
    CHECK(read->events[0].opening()->reasoning_end == "</think>");
    CHECK(read->events[0].opening()->reasoning_progress == 7);
    CHECK(read->events[0].opening()->reasoning_tokens == 41);
    open.reasoning_progress = 8;  // the whole marker: then the thought were over
    CHECK_FALSE(DecodeTokenBatch(Bytes(AppendTokenBatch, batch)).ok());
    open.reasoning_progress = 0;
    open.reasoning_end.assign(65, 'x');
    CHECK_FALSE(DecodeTokenBatch(Bytes(AppendTokenBatch, batch)).ok());
  }

  TEST_CASE("spans of a thought and the bytes of scores survive the way") {
    TextEvent event = SampleText();
    event.spans = {{1, true, true}, {2, false, true}, {3, true, false}};
    event.reasoning_tokens = 4;
    for (TokenId id = 0; id < 6; ++id) event.scores.push_back({id, -0.5f, 1});
    event.score_bytes = {"a", "\xe2\x82", "", std::string("\0b", 2), "<s>", "\xff"};
    const std::string payload = Bytes(AppendTextEvent, event);
    const absl::StatusOr<TextEvent> read = DecodeTextEvent(payload);
    REQUIRE(read.ok());
    CHECK(read->reasoning_tokens == 4);
    CHECK(read->score_bytes == event.score_bytes);
    REQUIRE(read->spans.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(read->spans[i].accepted == event.spans[i].accepted);
      CHECK(read->spans[i].reasoning == event.spans[i].reasoning);
    }
    // A stranger reads byte strings, one for each of the two scores of each token.
    const auto tokens =
        EventMap(payload).map.at("score_bytes").as<std::vector<std::vector<msgpack::object>>>();
    REQUIRE(tokens.size() == 3);
    CHECK(tokens[1].size() == 2);
    CHECK(tokens[0][1].type == msgpack::type::BIN);
    const msgpack::object wrong(17);
    CHECK(ErrorFieldOf(DecodeTextEvent(With(payload, "score_bytes", &wrong)).status()) ==
          "score_bytes");
    const std::vector<std::vector<std::string>> texts(3, {"a", "b"});
    msgpack::zone zone;
    const msgpack::object strings(texts, zone);  // str, and too few
    CHECK(ErrorFieldOf(DecodeTextEvent(With(payload, "score_bytes", &strings)).status()) ==
          "score_bytes");
  }

  TEST_CASE("events: a token batch survives the way") {
    const absl::StatusOr<TokenBatch> batch =
        DecodeTokenBatch(Bytes(AppendTokenBatch, SampleBatch()));
    REQUIRE(batch.ok());
    CHECK(batch->epoch == ~uint64_t{0});
    CHECK(batch->seq == 12);
    REQUIRE(batch->events.size() == 4);
    const TokenEvent& open = batch->events[0];
    CHECK(open.kind() == TokenEventKind::kOpen);
    CHECK(open.stream == 5);
    CHECK(open.time_ns == 100);
    CHECK(open.opening()->request_id == "req-1");
    CHECK(open.opening()->stop_strings == std::vector<std::string>{"\n", "END"});
    CHECK(open.opening()->stop_regex.empty());
    CHECK_FALSE(open.opening()->skip_special_tokens);
    CHECK(open.opening()->include_stop);
    CHECK(open.opening()->min_tokens == 9);
    const TokenEvent& tokens = batch->events[1];
    CHECK(tokens.kind() == TokenEventKind::kTokens);
    CHECK(tokens.offset == 0);
    CHECK(tokens.tokens()->ids == std::vector<TokenId>{1, 50256, 0});
    CHECK(tokens.tokens()->accepted == 2);
    CHECK(tokens.tokens()->stop_token == kNoToken);
    CHECK(batch->events[2].offset == 3);
    CHECK(batch->events[2].tokens()->stop_token == 7);
    const TokenEvent& end = batch->events[3];
    CHECK(end.kind() == TokenEventKind::kEnd);
    CHECK(end.end()->finish_reason == SPECD_FINISH_STOP);
    CHECK(end.offset == 4);
    CHECK(end.end()->stop_token == 7);
  }

  TEST_CASE("events: text, heartbeat and abort survive the way") {
    absl::StatusOr<TextEvent> text = DecodeTextEvent(Bytes(AppendTextEvent, SampleText()));
    REQUIRE(text.ok());
    CHECK(text->kind == TextEventKind::kEnd);
    CHECK(text->epoch == 9);
    CHECK(text->seq == 10);
    CHECK(text->stream == 12);
    CHECK(text->request_id == "req-1");
    CHECK(text->token_offset == 3);
    CHECK(text->tokens == 6);
    CHECK(text->byte_offset == 20);
    CHECK(text->text == "h\xc3\xa4llo");
    REQUIRE(text->spans.size() == 2);
    CHECK(text->spans[0].size_bytes == 3);
    CHECK(text->spans[0].accepted);
    CHECK_FALSE(text->spans[1].accepted);
    CHECK(text->finish_reason == SPECD_FINISH_STOP);
    CHECK(text->stop_string == "END");
    CHECK(text->stop_token == kNoToken);
    CHECK(text->rounds == 4);
    CHECK(text->accepted == 2);
    CHECK(text->late == 1);

    TextEvent by_id = SampleText();
    by_id.stop_string.clear();
    by_id.stop_token = 50256;
    text = DecodeTextEvent(Bytes(AppendTextEvent, by_id));
    REQUIRE(text.ok());
    CHECK(text->stop_string.empty());
    CHECK(text->stop_token == 50256);

    const absl::StatusOr<Heartbeat> beat =
        DecodeHeartbeat(Bytes(AppendHeartbeat, Heartbeat{1, 2, 3}));
    REQUIRE(beat.ok());
    CHECK(beat->epoch == 1);
    CHECK(beat->seq == 2);
    CHECK(beat->streams == 3);

    const absl::StatusOr<AbortRequest> abort =
        DecodeAbortRequest(Bytes(AppendAbortRequest, AbortRequest{1, 5, 33, SPECD_FINISH_ABORT}));
    REQUIRE(abort.ok());
    CHECK(abort->epoch == 1);
    CHECK(abort->stream == 5);
    CHECK(abort->kept_tokens == 33);
    CHECK(abort->finish_reason == SPECD_FINISH_ABORT);
  }

  TEST_CASE(
      "events: logprobs survive the way, bit for bit, and are left out where there are none") {
    TokenBatch batch = SampleBatch();
    batch.events[0].opening()->cumulative_logprob = 0.0;
    batch.events[1].tokens()->logprobs = {-0.1, -1e300, -std::numeric_limits<double>::infinity()};
    batch.events[3].end()->cumulative_logprob = -0.1 - 1e300;
    absl::StatusOr<TokenBatch> read = DecodeTokenBatch(Bytes(AppendTokenBatch, batch));
    REQUIRE(read.ok());
    CHECK(read->events[0].opening()->cumulative_logprob == 0.0);
    CHECK(read->events[1].tokens()->logprobs == batch.events[1].tokens()->logprobs);
    CHECK(read->events[2].tokens()->logprobs.empty());
    CHECK(read->events[3].end()->cumulative_logprob == batch.events[3].end()->cumulative_logprob);
    const EventMap found(Bytes(AppendTokenBatch, batch));
    std::vector<std::map<std::string, msgpack::object>> events;
    found.map.at("events").convert(events);
    CHECK(events[0].size() == 10);
    CHECK(events[1].at("logprobs").as<std::vector<double>>() == batch.events[1].tokens()->logprobs);
    CHECK(events[2].size() == 7);
    CHECK(events[3].at("cumulative_logprob").type == msgpack::type::FLOAT64);
    batch.events[1].tokens()->logprobs.pop_back();  // 2 for 3 ids
    CHECK_FALSE(DecodeTokenBatch(Bytes(AppendTokenBatch, batch)).ok());

    TextEvent text = SampleText();
    text.cumulative_logprob = -3.25;
    const std::string bytes = Bytes(AppendTextEvent, text);
    CHECK(EventMap(bytes).map.size() == 18);
    CHECK(DecodeTextEvent(bytes)->cumulative_logprob == -3.25);
    CHECK(std::isnan(DecodeTextEvent(Bytes(AppendTextEvent, SampleText()))->cumulative_logprob));
    const msgpack::object wrong(7);
    CHECK(ErrorFieldOf(DecodeTextEvent(With(bytes, "cumulative_logprob", &wrong)).status()) ==
          "cumulative_logprob");
    text.kind = TextEventKind::kText;  // not the end: nothing to rank by yet
    CHECK(EventMap(Bytes(AppendTextEvent, text)).map.size() == 11);
  }

  TEST_CASE("events: a stranger's msgpack library finds the documented keys and types") {
    const EventMap text(Bytes(AppendTextEvent, SampleText()));
    CHECK(text.map.size() == 17);
    CHECK(text.map.at("v").as<int>() == 1);
    CHECK(text.map.at("kind").as<std::string>() == "end");
    CHECK(text.map.at("rid").as<std::string>() == "req-1");
    CHECK(text.map.at("text").type == msgpack::type::STR);
    CHECK(text.map.at("spans").as<std::vector<std::vector<int>>>() ==
          std::vector<std::vector<int>>{{3, 1}, {3, 0}});
    CHECK(text.map.at("finish").as<std::string>() == "stop");
    CHECK(text.map.at("stop").as<std::string>() == "END");
    TextEvent open;
    open.kind = TextEventKind::kOpen;
    CHECK(EventMap(Bytes(AppendTextEvent, open)).map.size() == 6);
    TextEvent piece;
    piece.kind = TextEventKind::kText;
    CHECK(EventMap(Bytes(AppendTextEvent, piece)).map.size() == 11);
    TextEvent unstopped = SampleText();
    unstopped.stop_string.clear();
    CHECK(EventMap(Bytes(AppendTextEvent, unstopped)).map.at("stop").is_nil());

    std::vector<std::map<std::string, msgpack::object>> named_events;
    TokenBatch named = SampleBatch();
    named.events[0].opening()->profile = "qwen3";
    CHECK(DecodeTokenBatch(Bytes(AppendTokenBatch, named))->events[0].opening()->profile ==
          "qwen3");
    const EventMap with_name(Bytes(AppendTokenBatch, named));
    with_name.map.at("events").convert(named_events);
    CHECK(named_events[0].at("profile").as<std::string>() == "qwen3");
    CHECK(named_events[0].size() == 10);

    const EventMap batch(Bytes(AppendTokenBatch, SampleBatch()));
    std::vector<std::map<std::string, msgpack::object>> events;
    batch.map.at("events").convert(events);
    REQUIRE(events.size() == 4);
    CHECK(events[0].at("kind").as<std::string>() == "open");
    CHECK(events[0].at("min_tokens").as<int>() == 9);
    CHECK(events[0].size() == 9);
    CHECK_FALSE(events[0].contains("profile"));
    CHECK(events[1].at("ids").as<std::vector<int>>() == std::vector<int>{1, 50256, 0});
    CHECK(events[1].at("stop_token").is_nil());
    CHECK(events[1].size() == 7);
    CHECK(events[3].at("finish").as<std::string>() == "stop");
    CHECK(events[3].at("stop_token").as<int>() == 7);
    CHECK(events[3].size() == 6);
  }

  TEST_CASE("events: an encoder appends") {
    std::string bytes = "head";
    AppendHeartbeat({1, 2, 3}, &bytes);
    CHECK(bytes.substr(0, 4) == "head");
    CHECK(DecodeHeartbeat(std::string_view(bytes).substr(4)).ok());
  }
}

}  // namespace
}  // namespace specd
