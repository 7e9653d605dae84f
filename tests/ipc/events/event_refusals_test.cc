// Events of others: unknown and repeated keys, wrong types, contradictions, cuts.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <msgpack.hpp>
#include <string>

#include "ipc/base/error.h"
#include "tests/ipc/events/event_bytes.h"
#include "tests/ipc/events/event_samples.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("events: a key that this version does not know is ignored") {
    const msgpack::object extra(17);
    CHECK(DecodeTokenBatch(With(Bytes(AppendTokenBatch, SampleBatch()), "new", &extra)).ok());
    CHECK(DecodeTextEvent(With(Bytes(AppendTextEvent, SampleText()), "new", &extra)).ok());
    CHECK(DecodeHeartbeat(With(Bytes(AppendHeartbeat, Heartbeat{}), "new", &extra)).ok());
    const AbortRequest abort{1, 2, 3, SPECD_FINISH_STOP};
    CHECK(DecodeAbortRequest(With(Bytes(AppendAbortRequest, abort), "new", &extra)).ok());
  }

  TEST_CASE("events: of a key that comes twice the first value counts, in type and content") {
    // Bug: its type was that of the first value, and its content was read from the second.
    TextEvent event = SampleText();
    event.stop_string = "END";
    event.stop_token = kNoToken;
    std::string payload = Bytes(AppendTextEvent, event);
    const auto first = static_cast<unsigned char>(payload[0]);
    if (first == 0xde) {  // a map with the number of its entries in two bytes
      ++payload[2];
    } else {
      REQUIRE((first & 0xf0) == 0x80);
      REQUIRE((first & 0x0f) < 15);
      ++payload[0];
    }
    payload += "\xa4stop\x05";
    const absl::StatusOr<TextEvent> read = DecodeTextEvent(payload);
    REQUIRE(read.ok());
    CHECK(read->stop_string == "END");
    CHECK(read->stop_token == kNoToken);
  }

  TEST_CASE("events: a missing key or a wrong type is refused by name") {
    const std::string good = Bytes(AppendTextEvent, SampleText());
    const msgpack::object wrong(1.5);  // no field that must be there is a float
    for (const auto& field : EventMap(good).map) {
      const std::string& key = field.first;
      CAPTURE(key);
      CHECK(ErrorFieldOf(DecodeTextEvent(With(good, key, nullptr)).status()) == key);
      CHECK(ErrorFieldOf(DecodeTextEvent(With(good, key, &wrong)).status()) == key);
    }
    const std::string abort = Bytes(AppendAbortRequest, AbortRequest{1, 2, 3, SPECD_FINISH_STOP});
    for (const auto& field : EventMap(abort).map) {
      const std::string& key = field.first;
      CAPTURE(key);
      CHECK(ErrorFieldOf(DecodeAbortRequest(With(abort, key, nullptr)).status()) == key);
      CHECK(ErrorFieldOf(DecodeAbortRequest(With(abort, key, &wrong)).status()) == key);
    }
    // Inside a batch the error names the event's key in its text.
    const std::string batch = Bytes(AppendTokenBatch, SampleBatch());
    for (int i = 0; i < 4; ++i) {
      EventMap reader(batch);
      std::vector<std::map<std::string, msgpack::object>> events;
      reader.map.at("events").convert(events);
      for (const auto& field : std::map(events[i])) {
        const std::string& key = field.first;
        auto changed = events;
        changed[i][key] = wrong;
        msgpack::zone zone;
        const msgpack::object array(changed, zone);
        const absl::Status status = DecodeTokenBatch(With(batch, "events", &array)).status();
        CAPTURE(key);
        CHECK(ErrorFieldOf(status) == "events");
        CHECK(std::string(status.message()).find(" " + key + " ") != std::string::npos);
      }
    }
  }

  TEST_CASE("events: values that contradict each other are refused") {
    TokenBatch batch = SampleBatch();
    batch.events[1].tokens()->accepted = 4;  // of 3 ids
    CHECK_FALSE(DecodeTokenBatch(Bytes(AppendTokenBatch, batch)).ok());
    batch = SampleBatch();
    batch.events[1].tokens()->ids.assign(66, 1);  // max_draft + 1 is 65
    CHECK_FALSE(DecodeTokenBatch(Bytes(AppendTokenBatch, batch)).ok());
    batch.events[1].tokens()->ids.assign(65, 1);
    CHECK(DecodeTokenBatch(Bytes(AppendTokenBatch, batch)).ok());

    TextEvent text = SampleText();
    text.spans = {{3, true}, {2, false}};  // 5 bytes of 6
    CHECK(ErrorFieldOf(DecodeTextEvent(Bytes(AppendTextEvent, text)).status()) == "spans");
    text.spans = {{UINT32_MAX, true}};
    CHECK(ErrorFieldOf(DecodeTextEvent(Bytes(AppendTextEvent, text)).status()) == "spans");
    text.spans = {{6, true}};
    CHECK(DecodeTextEvent(Bytes(AppendTextEvent, text)).ok());

    msgpack::zone zone;
    const std::string good = Bytes(AppendTextEvent, SampleText());
    for (const char* reason : {"none", "Stop", ""}) {
      const msgpack::object value(std::string(reason), zone);
      CHECK(ErrorFieldOf(DecodeTextEvent(With(good, "finish", &value)).status()) == "finish");
    }
    const msgpack::object two(2);
    const absl::Status newer = DecodeTextEvent(With(good, "v", &two)).status();
    CHECK(ErrorFieldOf(newer) == "v");
    CHECK(newer.message().find("upgrade the reader") != absl::string_view::npos);
    SignOfLife alive = {.epoch = 1, .instance = 2, .shard = {.index = 63, .count = 64}};
    const auto heard = DecodeSignOfLife(Bytes(AppendSignOfLife, alive));
    REQUIRE(heard.ok());
    CHECK(heard->shard.index == 63);
    CHECK(heard->shard.count == 64);
    alive.shard.index = 64;
    CHECK(ErrorFieldOf(DecodeSignOfLife(Bytes(AppendSignOfLife, alive)).status()) == "shard");
    alive.shard.count = 65;
    CHECK(ErrorFieldOf(DecodeSignOfLife(Bytes(AppendSignOfLife, alive)).status()) == "shards");
    // Only what the text side may ask for: not "length".
    AbortRequest abort{1, 2, 3, SPECD_FINISH_LENGTH};
    CHECK(ErrorFieldOf(DecodeAbortRequest(Bytes(AppendAbortRequest, abort)).status()) == "finish");
  }

  TEST_CASE("events: a payload cut at any byte is refused") {
    const std::string batch = Bytes(AppendTokenBatch, SampleBatch());
    for (size_t size = 0; size < batch.size(); ++size) {
      CHECK_FALSE(DecodeTokenBatch(std::string_view(batch).substr(0, size)).ok());
    }
    const std::string text = Bytes(AppendTextEvent, SampleText());
    for (size_t size = 0; size < text.size(); ++size) {
      CHECK_FALSE(DecodeTextEvent(std::string_view(text).substr(0, size)).ok());
    }
    CHECK_FALSE(DecodeTextEvent(text + '\0').ok());
  }
}

}  // namespace
}  // namespace specd
