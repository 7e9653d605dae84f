// Control messages: every field there and back, and every way to be wrong refused by name.
#include "ipc/control.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <msgpack.hpp>
#include <string>

#include "ipc/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

// Every field away from its default, and signed ones below 0: of these a negative number is no
// wrong type.
OpenSequenceRequest SampleOpen() {
  OpenSequenceRequest open;
  open.request_id = "req-1";
  open.verify = 2;
  open.has_seed = true;
  open.seed = ~uint64_t{0};
  open.n = 3;
  open.temperature = 0.1;  // no float32 holds it
  open.top_p = 0.95;
  open.top_k = -1;
  open.min_p = 0.05;
  open.filter_order = 1;
  open.frequency_penalty = -1.5;  // whole numbers would be repacked as integers below
  open.presence_penalty = 0.3;
  open.repetition_penalty = 1.1;
  open.logit_bias_ids = {5, 6};
  open.logit_bias = {1.5, -99.5};
  open.bad_word_ids = {1, 2, 3};
  open.bad_word_lengths = {2, 1};
  open.no_repeat_ngram_size = 4;
  open.no_repeat_ngram_window = 64;
  open.thinking_budget = -100;
  open.thinking_start_id = -7;
  open.thinking_end_ids = {8, 9};
  open.thinking_newline_id = -10;
  open.thinking_preset = "qwen3";
  open.processor_names = {"repeat_run"};
  open.processor_values = {"length=3"};
  open.max_tokens = 0x7fffffff;
  open.min_tokens = 11;
  open.ignore_eos = true;
  open.stop_token_ids = {0, -1, 0x7fffffff, -0x7fffffff - 1};
  open.stop_strings = {"\n\n", "", "\xc3\xa4"};
  open.include_stop = true;
  open.skip_special_tokens = false;
  open.logprobs = -5;
  open.logprobs_mode = 3;
  open.logprob_token_ids = {12};
  open.draft_temperature = 1.3;
  open.draft_top_p = 0.9;
  open.draft_top_k = -40;
  open.draft_min_p = 0.02;
  open.draft_filter_order = 1;
  open.draft_edits = true;
  open.num_prompt_ids = 1;
  open.num_output_ids = 2;
  open.num_allowed_token_ids = 3;
  open.num_disallowed_token_ids = 4;
  open.num_no_repeat_ngram_whitelist = 5;
  return open;
}

std::vector<Request> SampleRequests() {
  HelloRequest hello;
  hello.name = "toy";
  hello.version = "0.1.0";
  hello.pid = 4711;
  hello.limits = {32000, 16, 17, 8, 4, 21};
  return {hello,
          MappedRequest{},
          RegisterRegionRequest{uint64_t{1} << 40},
          BindTensorRequest{2, 3, 1, 1, 64, 100, 32064, 0.5, 30.5, true},
          SampleOpen(),
          CloseSequenceRequest{uint64_t{1} << 32 | 5},
          AbortSequenceRequest{uint64_t{2} << 32 | 6},
          ForkSequenceRequest{uint64_t{2} << 32 | 6, "req-2", true, 99},
          GetStatsRequest{},
          RegisterDeviceRegionRequest{1, "GPU-1", "00ff", 1, 2, 3, 4, 5},
          RegisterDeviceRegionRequest{2, "GPU-2", "", 6, 7, 8, ~uint64_t{0}, ~uint32_t{0}},
          UnregisterRegionRequest{65536}};
}

std::vector<Reply> SampleReplies() {
  return {HelloReply{1, ~uint64_t{0}, "0.1.0", "cpu", "ipc:///a", "ipc:///b", "1a:2b"},
          RegionReply{7},
          SequenceReply{{uint64_t{1} << 32, ~uint64_t{0}}, {99, 100}, 3},
          OkReply{},
          ErrorReply{SPECD_ERROR_REGION, "num_rows", "too many"},
          StatsReply{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ~uint64_t{0}}};
}

// A message as a list of (field, printed value), through the one list of fields.
struct PrintFields {
  std::vector<std::string>* out;
  void operator()(const char* key, const std::string& value, size_t = 0) {
    out->push_back(fmt::format("{}=[{}]", key, value));
  }
  template <class T>
  void operator()(const char* key, const std::vector<T>& values, size_t = 0) {
    std::string text = key;
    for (const T& value : values) text += fmt::format(",{}", value);
    out->push_back(text);
  }
  template <class T>
  void operator()(const char* key, const T& value, size_t = 0) {
    out->push_back(fmt::format("{}={}", key, value));
  }
};

template <class Variant>
std::vector<std::string> Print(const Variant& message) {
  std::vector<std::string> out;
  std::visit(
      [&out](const auto& alternative) {
        PrintFields print{&out};
        std::decay_t<decltype(alternative)>::Fields(alternative, print);
      },
      message);
  return out;
}

std::vector<uint8_t> MustEncode(const Request& request) {
  absl::StatusOr<std::vector<uint8_t>> bytes = EncodeRequest(request, 42);
  REQUIRE(bytes.ok());
  return *std::move(bytes);
}

absl::StatusOr<Request> DecodeWhole(std::span<const uint8_t> bytes) {
  absl::StatusOr<ControlHeader> header = DecodeHeader(bytes, ControlReader::kDaemon);
  if (!header.ok()) return header.status();
  return DecodeRequest(*header, bytes);
}

// The body of a message, taken apart so that a test can change one field and put it together again.
using Body = std::vector<std::pair<msgpack::object, msgpack::object>>;

struct Parts {
  explicit Parts(const std::vector<uint8_t>& message)
      : header(message.begin(), message.begin() + 24) {
    handle =
        msgpack::unpack(reinterpret_cast<const char*>(message.data()) + 24, message.size() - 24);
    const msgpack::object_map& map = handle.get().via.map;
    for (uint32_t i = 0; i < map.size; ++i) body.emplace_back(map.ptr[i].key, map.ptr[i].val);
  }
  std::vector<uint8_t> Join() const {
    msgpack::sbuffer buffer;
    msgpack::packer<msgpack::sbuffer> packer(buffer);
    packer.pack_map(static_cast<uint32_t>(body.size()));
    for (const auto& [key, value] : body) {
      packer.pack(key);
      packer.pack(value);
    }
    std::vector<uint8_t> message = header;
    message.insert(message.end(), buffer.data(), buffer.data() + buffer.size());
    const auto size = static_cast<uint32_t>(buffer.size());
    std::memcpy(message.data() + 8, &size, sizeof(size));
    return message;
  }
  std::string KeyAt(size_t i) const { return body[i].first.as<std::string>(); }

  std::vector<uint8_t> header;
  msgpack::object_handle handle;
  Body body;
};

TEST_SUITE("unit") {
  TEST_CASE("control: every request survives the way there") {
    for (const Request& request : SampleRequests()) {
      const std::vector<uint8_t> bytes = MustEncode(request);
      const absl::StatusOr<ControlHeader> header = DecodeHeader(bytes, ControlReader::kDaemon);
      REQUIRE(header.ok());
      CHECK(header->request_id == 42);
      const absl::StatusOr<Request> decoded = DecodeRequest(*header, bytes);
      REQUIRE(decoded.ok());
      CHECK(decoded->index() == request.index());
      CHECK(Print(*decoded) == Print(request));
      const bool has_fd = std::holds_alternative<RegisterRegionRequest>(request) ||
                          std::holds_alternative<OpenSequenceRequest>(request) ||
                          (std::holds_alternative<RegisterDeviceRegionRequest>(request) &&
                           std::get<RegisterDeviceRegionRequest>(request).kind != 1);
      CHECK(header->num_fds == (has_fd ? 1 : 0));
    }
  }

  TEST_CASE("control: every reply survives the way back") {
    for (const Reply& reply : SampleReplies()) {
      const absl::StatusOr<std::vector<uint8_t>> bytes = EncodeReply(reply, 43);
      REQUIRE(bytes.ok());
      const absl::StatusOr<ControlHeader> header = DecodeHeader(*bytes, ControlReader::kLibrary);
      REQUIRE(header.ok());
      CHECK(header->request_id == 43);
      CHECK(header->num_fds == (std::holds_alternative<HelloReply>(reply) ? 1 : 0));
      const absl::StatusOr<Reply> decoded = DecodeReply(*header, *bytes);
      REQUIRE(decoded.ok());
      CHECK(decoded->index() == reply.index());
      CHECK(Print(*decoded) == Print(reply));
    }
  }

  TEST_CASE("control: doubles keep every bit, and must be doubles") {
    OpenSequenceRequest open = SampleOpen();
    // msgpack-c's own packer writes 1.0 as the integer 1.
    for (double value : {1.0, 0.0, -0.0, 2.0, 1e300, std::nan("")}) {
      OpenSequenceRequest exact = open;
      exact.temperature = value;
      const absl::StatusOr<Request> decoded = DecodeWhole(MustEncode(exact));
      REQUIRE(decoded.ok());
      const double back = std::get<OpenSequenceRequest>(*decoded).temperature;
      CHECK(std::memcmp(&back, &value, sizeof(value)) == 0);
    }
    const absl::StatusOr<Request> decoded = DecodeWhole(MustEncode(open));
    REQUIRE(decoded.ok());
    CHECK(std::get<OpenSequenceRequest>(*decoded).temperature == 0.1);
    CHECK(std::get<OpenSequenceRequest>(*decoded).draft_temperature == 1.3);
    for (const msgpack::object& wrong : {msgpack::object(0.5f), msgpack::object(1)}) {
      Parts parts(MustEncode(open));
      for (auto& [key, value] : parts.body) {
        if (key.as<std::string>() == "temperature") value = wrong;
      }
      CHECK(ErrorFieldOf(DecodeWhole(parts.Join()).status()) == "temperature");
    }
  }

  TEST_CASE("control: each field missing, repeated or of a wrong type is an error that names it") {
    for (const Request& request : SampleRequests()) {
      const std::vector<uint8_t> good = MustEncode(request);
      const size_t num_fields = Parts(good).body.size();
      for (size_t i = 0; i < num_fields; ++i) {
        const std::string name = Parts(good).KeyAt(i);
        CAPTURE(name);
        {
          Parts parts(good);
          parts.body.erase(parts.body.begin() + static_cast<ptrdiff_t>(i));
          const absl::Status status = DecodeWhole(parts.Join()).status();
          CHECK(ErrorFieldOf(status) == name);
          CHECK(status.message().find("missing") != absl::string_view::npos);
        }
        {
          Parts parts(good);
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
          Parts parts(good);
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
      Parts parts(good);
      msgpack::zone zone;
      parts.body.emplace_back(msgpack::object(std::string("surprise"), zone), msgpack::object(1));
      CHECK(ErrorFieldOf(DecodeWhole(parts.Join()).status()) == "surprise");
      parts.body.back().first = msgpack::object(7);
      CHECK(ErrorFieldOf(DecodeWhole(parts.Join()).status()) == "key");
    }
  }

  TEST_CASE("control: an integer that does not fit its field is refused, not cut") {
    Parts bind(MustEncode(BindTensorRequest{1, 1, 0, 0, 0, 1, 0}));
    bind.body[1].second = msgpack::object(uint64_t{1} << 32);
    CHECK(ErrorFieldOf(DecodeWhole(bind.Join()).status()) == "region");
    OpenSequenceRequest open = SampleOpen();
    Parts parts(MustEncode(open));
    msgpack::zone zone;
    for (auto& [key, value] : parts.body) {
      if (key.as<std::string>() == "stop_token_ids") {
        value = msgpack::object(std::vector<int64_t>{int64_t{1} << 31}, zone);
      }
    }
    CHECK(ErrorFieldOf(DecodeWhole(parts.Join()).status()) == "stop_token_ids");
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

  TEST_CASE("control: each field of the header is checked") {
    const std::vector<uint8_t> good = MustEncode(CloseSequenceRequest{5});
    const auto field_of = [&good](size_t offset, std::vector<uint8_t> bytes) {
      std::vector<uint8_t> message = good;
      std::copy(bytes.begin(), bytes.end(), message.begin() + static_cast<ptrdiff_t>(offset));
      return ErrorFieldOf(DecodeHeader(message, ControlReader::kDaemon).status());
    };
    CHECK(field_of(0, {0x53}) == "");  // 'S', unchanged
    CHECK(field_of(0, {0x54}) == "magic");
    CHECK(field_of(4, {0}) == "ver_major");
    CHECK(field_of(4, {2}) == "ver_major");
    CHECK(field_of(5, {9}) == "");  // a newer minor version may be read
    CHECK(field_of(6, {0, 0}) == "type");
    CHECK(field_of(6, {12, 0}) == "type");
    CHECK(field_of(6, {6, 1}) == "type");
    CHECK(field_of(8, {0xff, 0xff, 0xff, 0xff}) == "body_bytes");  // 4 GiB
    CHECK(field_of(8, {0, 0, 0, 0}) == "body_bytes");
    CHECK(field_of(16, {1, 0, 0, 0}) == "num_fds");
    CHECK(field_of(16, {0xff, 0xff, 0xff, 0xff}) == "num_fds");
    CHECK(field_of(20, {1}) == "reserved");
    CHECK(ErrorFieldOf(
              DecodeHeader(std::vector<uint8_t>(kControlBytesMax + 1, 0), ControlReader::kDaemon)
                  .status()) == "message");
  }

  TEST_CASE("control: an opening comes with a descriptor exactly if it has lists outside") {
    OpenSequenceRequest open;
    open.request_id = "r";
    for (uint32_t OpenSequenceRequest::*count :
         {&OpenSequenceRequest::num_prompt_ids, &OpenSequenceRequest::num_output_ids,
          &OpenSequenceRequest::num_allowed_token_ids,
          &OpenSequenceRequest::num_disallowed_token_ids,
          &OpenSequenceRequest::num_no_repeat_ngram_whitelist}) {
      OpenSequenceRequest with = open;
      with.*count = 1;
      CHECK(DecodeHeader(MustEncode(with), ControlReader::kDaemon)->num_fds == 1);
    }
    std::vector<uint8_t> message = MustEncode(open);
    CHECK(DecodeHeader(message, ControlReader::kDaemon)->num_fds == 0);
    message[16] = 2;
    CHECK(ErrorFieldOf(DecodeHeader(message, ControlReader::kDaemon).status()) == "num_fds");
  }

  TEST_CASE("control: another major version names both and says whom to upgrade") {
    std::vector<uint8_t> message = MustEncode(MappedRequest{});
    message[4] = 2;
    message[5] = 3;
    const absl::Status newer = DecodeHeader(message, ControlReader::kDaemon).status();
    CHECK(ErrorCodeOf(newer) == SPECD_ERROR_VERSION);
    CHECK(std::string(newer.message()) ==
          "the library speaks control protocol 2.3, the daemon 1.0; upgrade the daemon");
    CHECK(std::string(DecodeHeader(message, ControlReader::kLibrary).status().message()) ==
          "the daemon speaks control protocol 2.3, the library 1.0; upgrade the library");
    message[4] = 0;
    CHECK(std::string(DecodeHeader(message, ControlReader::kDaemon).status().message()) ==
          "the library speaks control protocol 0.3, the daemon 1.0; upgrade the library");
  }

  TEST_CASE("control: a reply is no request and a request no reply") {
    const absl::StatusOr<std::vector<uint8_t>> reply = EncodeReply(OkReply{}, 1);
    REQUIRE(reply.ok());
    CHECK(ErrorFieldOf(DecodeWhole(*reply).status()) == "type");
    const std::vector<uint8_t> request = MustEncode(MappedRequest{});
    const absl::StatusOr<ControlHeader> header = DecodeHeader(request, ControlReader::kLibrary);
    REQUIRE(header.ok());
    CHECK(ErrorFieldOf(DecodeReply(*header, request).status()) == "type");
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
    open.num_prompt_ids = 1 << 20;  // however many: they do not travel in the message
    const absl::StatusOr<std::vector<uint8_t>> largest = EncodeRequest(open, 1);
    REQUIRE(largest.ok());
    CHECK(DecodeWhole(*largest).ok());
    open.stop_strings.assign(1024, std::string(64, 'y'));
    CHECK(ErrorFieldOf(EncodeRequest(open, 1).status()) == "message");

    // The reader has the same bounds, whoever wrote.
    Parts parts(MustEncode(HelloRequest{}));
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
  }
}

}  // namespace
}  // namespace specd
