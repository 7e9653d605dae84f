// Control messages whose body is wrong: every way is refused by name, and takes nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <msgpack.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/control/control.h"
#include "tests/ipc/control/control_samples.h"

namespace specd {
namespace {

// docs/PROTOCOL.md: every field of OpenSequence but the first four, what chooses sequences, and
// what engines and ranks bring from another daemon.
bool MayBeLeftOut(const Request& request, std::string_view field) {
  if (std::holds_alternative<OpenSequencesRequest>(request)) return field == "pending";
  if (std::holds_alternative<AbortStreamsRequest>(request)) return true;
  if (std::holds_alternative<HelloRequest>(request)) return field == "join_token";
  if (std::holds_alternative<JoinRequest>(request)) {
    return field == "resumes" || field == "rejoins";
  }
  if (std::holds_alternative<ListSequencesRequest>(request)) {
    return field == "request_id" || field == "stream" || field == "params";
  }
  return std::holds_alternative<OpenSequenceRequest>(request) && field != "request_id" &&
         field != "has_seed" && field != "seed" && field != "numbers";
}

TEST_SUITE("unit") {
  TEST_CASE(
      "control: a field that is repeated, of a wrong type or missing is an error that names it") {
    for (const Request& request : SampleRequests()) {
      const std::vector<uint8_t> good = MustEncode(request);
      const size_t num_fields = MessageParts(good).body.size();
      for (size_t i = 0; i < num_fields; ++i) {
        const std::string name = MessageParts(good).KeyAt(i);
        CAPTURE(name);
        {
          MessageParts parts(good);
          parts.body.erase(parts.body.begin() + static_cast<ptrdiff_t>(i));
          const absl::Status status = DecodeWhole(parts.Join()).status();
          if (MayBeLeftOut(request, name)) {
            CHECK(status.ok());
          } else {
            CHECK(ErrorFieldOf(status) == name);
            CHECK(status.message().find("missing") != absl::string_view::npos);
          }
        }
        {
          MessageParts parts(good);
          parts.body.push_back(parts.body[i]);
          CHECK(ErrorFieldOf(DecodeWhole(parts.Join()).status()) == name);
        }
        // Everything but the field's own type: nil, bytes, map, and one of each scalar kind.
        msgpack::zone zone;
        const std::map<std::string, int> some_map{{"a", 1}};
        const std::vector<char> some_bytes{'a', 'b'};
        const msgpack::object wrongs[] = {msgpack::object(),
                                          msgpack::object(true),
                                          msgpack::object(uint64_t{1} << 63),
                                          msgpack::object(-5),
                                          msgpack::object(1.5),
                                          msgpack::object(std::string("x"), zone),
                                          msgpack::object(some_bytes, zone),
                                          msgpack::object(some_map, zone),
                                          msgpack::object(std::vector<bool>{true}, zone)};
        for (const msgpack::object& wrong : wrongs) {
          MessageParts parts(good);
          if (parts.body[i].second.type == wrong.type) {
            // An integer of 2^63 is the right type only for a 64-bit field.
            continue;
          }
          parts.body[i].second = wrong;
          const absl::Status status = DecodeWhole(parts.Join()).status();
          CAPTURE(static_cast<int>(wrong.type));
          CHECK(ErrorCodeOf(status) == SPECD_ERROR_INVALID_ARGUMENT);
          CHECK(ErrorFieldOf(status) == name);
        }
      }
      MessageParts parts(good);
      msgpack::zone zone;
      parts.body.emplace_back(msgpack::object(std::string("surprise"), zone), msgpack::object(1));
      CHECK(ErrorFieldOf(DecodeWhole(parts.Join()).status()) == "surprise");
      parts.body.back().first = msgpack::object(7);
      CHECK(ErrorFieldOf(DecodeWhole(parts.Join()).status()) == "key");
    }
  }

  TEST_CASE("control: fields are read in any order, and a repeated one is refused at any place") {
    for (const Request& request : SampleRequests()) {
      const std::vector<uint8_t> good = MustEncode(request);
      const auto num_fields = static_cast<ptrdiff_t>(MessageParts(good).body.size());
      const auto read_again = [](const MessageParts& parts) {
        const absl::StatusOr<Request> decoded = DecodeWhole(parts.Join());
        REQUIRE(decoded.ok());
        return MustEncode(*decoded);
      };
      MessageParts backwards(good);
      std::reverse(backwards.body.begin(), backwards.body.end());
      CHECK(read_again(backwards) == good);
      for (ptrdiff_t first = 0; first < num_fields; ++first) {
        MessageParts parts(good);
        std::rotate(parts.body.begin(), parts.body.begin() + first, parts.body.end());
        CHECK(read_again(parts) == good);
        for (ptrdiff_t place = 0; place <= num_fields; ++place) {
          MessageParts repeated(good);
          const auto field = repeated.body[static_cast<size_t>(first)];
          repeated.body.insert(repeated.body.begin() + place, field);
          CHECK(ErrorFieldOf(DecodeWhole(repeated.Join()).status()) ==
                field.first.as<std::string>());
        }
      }
    }
  }

  TEST_CASE("control: an integer that does not fit its field is refused, not cut") {
    MessageParts bind(MustEncode(BindTensorRequest{1, 1, {.num_rows = 1}}));
    bind.body[1].second = msgpack::object(uint64_t{1} << 32);
    CHECK(ErrorFieldOf(DecodeWhole(bind.Join()).status()) == "region");
    OpenSequenceRequest open = SampleOpen();
    MessageParts parts(MustEncode(open));
    msgpack::zone zone;
    for (auto& [key, value] : parts.body) {
      if (key.as<std::string>() == "stop_token_ids") {
        value = msgpack::object(std::vector<int64_t>{int64_t{1} << 31}, zone);
      }
    }
    CHECK(ErrorFieldOf(DecodeWhole(parts.Join()).status()) == "stop_token_ids");
  }

  TEST_CASE("control: numbers are a map of names to doubles, up to 64, in the order they came") {
    const msgpack::object name = Text("top_h");
    const msgpack::object value(0.25);
    const absl::StatusOr<Request> decoded =
        DecodeNumbers({{name, value}, {Text(""), msgpack::object(-0.5)}, {name, value}});
    REQUIRE(decoded.ok());
    // The reader of the names refuses the one that is there twice.
    CHECK(std::get<OpenSequenceRequest>(*decoded).numbers ==
          NamedNumbers{{"top_h", 0.25}, {"", -0.5}, {"top_h", 0.25}});
    CHECK(DecodeNumbers({}).ok());
    CHECK(DecodeNumbers(Body(64, {name, value})).ok());
    for (const size_t count : {65, 100}) {
      const absl::Status many = DecodeNumbers(Body(count, {name, value})).status();
      CHECK(ErrorFieldOf(many) == "numbers");
      CHECK(many.message().find("64") != absl::string_view::npos);
    }
    CHECK(ErrorFieldOf(DecodeNumbers({{msgpack::object(7), value}}).status()) == "numbers");
    CHECK(ErrorFieldOf(DecodeNumbers({{value, value}}).status()) == "numbers");
    const std::string long_name(1000, 'n');
    const absl::Status wrong = DecodeNumbers({{Text(long_name.c_str()), name}}).status();
    CHECK(ErrorFieldOf(wrong) == std::string(64, 'n'));
    OpenSequenceRequest open;
    open.numbers.assign(65, {"top_h", 0.25});
    CHECK(ErrorFieldOf(EncodeRequest(open, 1).status()) == "numbers");
  }

  TEST_CASE("control: a message cut at any byte, or with a byte more, is refused") {
    for (const Request& request : SampleRequests()) {
      const std::vector<uint8_t> good = MustEncode(request);
      for (size_t size = 0; size < good.size(); ++size) {
        CAPTURE(size);
        // As the socket would deliver it: the header's body_bytes does not fit.
        CHECK_FALSE(DecodeWhole(std::span(good).first(size)).ok());
        if (size < 24) continue;
        // And with a header that agrees: the map ends early.
        std::vector<uint8_t> cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
        const auto body_bytes = static_cast<uint32_t>(size - 24);
        std::memcpy(cut.data() + 8, &body_bytes, sizeof(body_bytes));
        CHECK(ErrorFieldOf(DecodeWhole(cut).status()) == "body");
      }
      std::vector<uint8_t> longer = good;
      longer.push_back(0xc0);
      CHECK(ErrorFieldOf(DecodeWhole(longer).status()) == "body_bytes");
      const auto body_bytes = static_cast<uint32_t>(longer.size() - 24);
      std::memcpy(longer.data() + 8, &body_bytes, sizeof(body_bytes));
      CHECK(ErrorFieldOf(DecodeWhole(longer).status()) == "body");
    }
  }

  TEST_CASE("control: strings and arrays have bounds on both sides") {
    HelloRequest hello;
    hello.name = std::string(64, 'x');
    CHECK(EncodeRequest(hello, 1).ok());
    hello.name.push_back('x');
    CHECK(ErrorFieldOf(EncodeRequest(hello, 1).status()) == "name");

    OpenSequenceRequest open;
    open.request_id = std::string(129, 'x');
    CHECK(ErrorFieldOf(EncodeRequest(open, 1).status()) == "request_id");
    open.request_id = std::string(128, 'x');
    open.stop_token_ids.assign(65, 1);
    CHECK(ErrorFieldOf(EncodeRequest(open, 1).status()) == "stop_token_ids");
    open.stop_token_ids.assign(64, 1);
    open.stop_strings.assign(1025, "x");
    CHECK(ErrorFieldOf(EncodeRequest(open, 1).status()) == "stop_strings");
    // All bounds at once, 1,024 strings of 32 bytes: fits.
    open.stop_strings.assign(1024, std::string(32, 'y'));
    constexpr int32_t kLongest = 1 << 20;  // five bytes
    open.logit_bias_ids.assign(1024, kLongest);
    open.logit_bias.assign(1024, 1.0);
    open.bad_word_ids.assign(1024, kLongest);
    open.bad_word_lengths.assign(128, 8);
    open.thinking_end_ids.assign(64, kLongest);
    open.processor_names.assign(8, std::string(64, 'p'));
    open.processor_values.assign(8, std::string(256, 'v'));
    open.stop_token_ids.assign(64, kLongest);
    open.logprob_token_ids.assign(64, kLongest);
    open.synthetic_rates.assign(64, 0.1);
    open.numbers.assign(64, {std::string(26, 'n'), 1e300});  // no name of a parameter is longer
    open.num_prompt_ids = 1 << 20;  // however many: they do not travel in the message
    const absl::StatusOr<std::vector<uint8_t>> largest = EncodeRequest(open, 1);
    REQUIRE(largest.ok());
    CHECK(DecodeWhole(*largest).ok());
    open.stop_strings.assign(1024, std::string(64, 'y'));
    CHECK(ErrorFieldOf(EncodeRequest(open, 1).status()) == "message");

    // The reader has the same bounds for every writer.
    MessageParts parts(MustEncode(HelloRequest{}));
    msgpack::zone zone;
    parts.body[0].second = msgpack::object(std::string(65, 'x'), zone);
    CHECK(ErrorFieldOf(DecodeWhole(parts.Join()).status()) == "name");
  }

  TEST_CASE("control: claims without content take no memory and no depth") {
    const auto body = [](std::vector<uint8_t> bytes) {
      std::vector<uint8_t> message = MustEncode(MappedRequest{});
      message.resize(24);
      message.insert(message.end(), bytes.begin(), bytes.end());
      const auto size = static_cast<uint32_t>(bytes.size());
      std::memcpy(message.data() + 8, &size, sizeof(size));
      return ErrorFieldOf(DecodeWhole(message).status());
    };
    CHECK(body({0xdd, 0xff, 0xff, 0xff, 0xff}) == "body");  // an array of 2^32 - 1
    CHECK(body({0xdf, 0xff, 0xff, 0xff, 0xff}) == "body");  // a map of 2^32 - 1
    CHECK(body({0xdb, 0xff, 0xff, 0xff, 0xff}) == "body");  // a string of 4 GiB
    CHECK(body({0xc1}) == "body");                          // never used by msgpack
    CHECK(body({0x01}) == "body");                          // no map
    CHECK(body({}) == "body");
    // Arrays in each other, each of them complete: too deep before anybody asks for their type.
    std::vector<uint8_t> deep = {0x81, 0xa1, 0x61};
    deep.insert(deep.end(), 8, 0x91);
    deep.push_back(0xc0);
    CHECK(body(deep) == "body");
    CHECK(body({0x81, 0xa1, 0x61, 0x91, 0xc0}) == "a");
    // A complete map, with as many fields as a reader can count and with one more.
    std::vector<uint8_t> map = {0xde, 0, 128};
    for (int i = 0; i < 128; ++i) map.insert(map.end(), {0xa1, 0x61, 0xc0});
    CHECK(body(map) == "a");
    map[2] = 129;
    map.insert(map.end(), {0xa1, 0x61, 0xc0});
    CHECK(body(map) == "body");
  }
}

}  // namespace
}  // namespace specd
