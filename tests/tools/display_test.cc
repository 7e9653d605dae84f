#include "tools/toy_client/display.h"

#include <doctest/doctest.h>

#include <string>

#include "kernels/core/sequence_round.h"
#include "simdjson.h"

namespace specd::toy {
namespace {

TextEvent MakeEnd() {
  TextEvent event;
  event.kind = TextEventKind::kEnd;
  event.epoch = 3;
  event.seq = 12;
  event.request_id = "a \"b\"";
  event.token_offset = 4;
  event.tokens = 6;
  event.byte_offset = 20;
  event.text = "x\ny\u00e9";
  event.spans = {{2, true}, {3, false}};
  event.finish_reason = static_cast<uint32_t>(FinishReason::kStop);
  event.stop_string = "END";
  event.rounds = 2;
  event.accepted = 4;
  event.late = 1;
  return event;
}

TEST_SUITE("unit") {
  TEST_CASE("an event as JSON can be read back") {
    simdjson::dom::parser parser;
    simdjson::dom::element line;
    REQUIRE(parser.parse(FormatJsonEvent(MakeEnd())).get(line) == simdjson::SUCCESS);
    CHECK(std::string_view(line["kind"]) == "end");
    CHECK(std::string_view(line["rid"]) == "a \"b\"");
    CHECK(uint64_t(line["seq"]) == 12);
    CHECK(uint64_t(line["token_offset"]) == 4);
    CHECK(uint64_t(line["tokens"]) == 6);
    CHECK(uint64_t(line["byte_offset"]) == 20);
    CHECK(std::string_view(line["text"]) == "x\ny\u00e9");
    CHECK(uint64_t(line["spans"].at(0).at(0)) == 2);
    CHECK(bool(line["spans"].at(0).at(1)));
    CHECK_FALSE(bool(line["spans"].at(1).at(1)));
    CHECK(std::string_view(line["finish"]) == "stop");
    CHECK(std::string_view(line["stop"]) == "END");
    CHECK(uint64_t(line["late"]) == 1);
    CHECK(line["cumulative_logprob"].is_null());
    TextEvent ranked = MakeEnd();
    ranked.cumulative_logprob = -0.1 - 1e-17;
    REQUIRE(parser.parse(FormatJsonEvent(ranked)).get(line) == simdjson::SUCCESS);
    CHECK(double(line["cumulative_logprob"]) == -0.1 - 1e-17);
  }

  TEST_CASE("scores are triples for each token, and absent without logprobs") {
    TextEvent event = MakeEnd();
    CHECK(FormatJsonEvent(event).find("scores") == std::string::npos);
    event.scores = {{7, -0.5f, 1}, {-1, -kInfinity, 0}, {300, -2.25f, 12}, {7, -0.125f, 1}};
    const std::string json = FormatJsonEvent(event);
    CHECK(json.find(R"("scores": [[[7, -0.5, 1], [-1, null, 0]], )"
                    R"([[300, -2.25, 12], [7, -0.125, 1]]], "finish")") != std::string::npos);
    simdjson::dom::parser parser;
    CHECK(parser.parse(json).error() == simdjson::SUCCESS);
  }

  TEST_CASE("what stopped a stream is a string, an id or null") {
    TextEvent event = MakeEnd();
    event.stop_string.clear();
    CHECK(FormatJsonEvent(event).find("\"stop\": null") != std::string::npos);
    event.stop_token = 0;
    CHECK(FormatJsonEvent(event).find("\"stop\": 0,") != std::string::npos);
  }

  TEST_CASE("opening events have no text") {
    TextEvent event = MakeEnd();
    event.kind = TextEventKind::kOpen;
    const std::string json = FormatJsonEvent(event);
    CHECK(json == R"({"kind": "open", "epoch": 3, "seq": 12, "stream": 0, "rid": "a \"b\""})");
  }

  // Numbers and names of CONTRACT §7.
  TEST_CASE("finish reasons by name") {
    CHECK(FinishName(1) == std::string("stop"));
    CHECK(FinishName(2) == std::string("length"));
    CHECK(FinishName(3) == std::string("abort"));
    CHECK(FinishName(4) == std::string("error"));
    CHECK(FinishName(99) == std::string("unknown"));
  }
}

}  // namespace
}  // namespace specd::toy
