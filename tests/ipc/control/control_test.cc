// Control messages: every field there and back, and the header that goes before them.
#include "ipc/control/control.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ipc/base/error.h"
#include "tests/ipc/control/control_samples.h"

namespace specd {
namespace {

// A message as a list of (field, printed value), through the one list of fields.
struct PrintFields {
  std::vector<std::string>* out;
  void operator()(const char* key, const std::string& value, size_t = 0) {
    out->push_back(fmt::format("{}=[{}]", key, value));
  }
  void operator()(const char* key, const NamedNumbers& numbers, size_t = 0) {
    std::string text = key;
    for (const auto& [name, value] : numbers) text += fmt::format(",{}={}", name, value);
    out->push_back(text);
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
  template <class T>
  void operator()(OptionalKey key, const T& value, size_t = 0) {
    (*this)(key.name, value);
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
                          std::holds_alternative<OpenSequencesRequest>(request);
      const auto* const device = std::get_if<RegisterDeviceRegionRequest>(&request);
      // The samples' kinds: a handle, two pieces, a pool.
      const size_t of_device[] = {0, 0, 2, 1};
      CHECK(header->num_fds == (device != nullptr ? of_device[device->spec.kind] : has_fd ? 1 : 0));
    }
  }

  TEST_CASE("control: an OpenSequence leaves out what is empty, and a field left out is empty") {
    OpenSequenceRequest open;
    open.request_id = "r";
    const MessageParts parts(MustEncode(open));
    std::vector<std::string> keys;
    for (size_t i = 0; i < parts.body.size(); ++i) keys.push_back(parts.KeyAt(i));
    CHECK(keys == std::vector<std::string>{"request_id", "has_seed", "seed", "numbers"});

    // One field after the other is taken out of a full message: that one is empty, no other.
    const std::vector<uint8_t> full = MustEncode(SampleOpen());
    const std::vector<std::string> all = Print(Request(SampleOpen()));
    const std::vector<std::string> none = Print(Request(OpenSequenceRequest()));
    REQUIRE(MessageParts(full).body.size() == all.size());
    for (size_t i = 4; i < all.size(); ++i) {
      MessageParts without(full);
      without.body.erase(without.body.begin() + static_cast<ptrdiff_t>(i));
      const absl::StatusOr<Request> decoded = DecodeWhole(without.Join());
      REQUIRE(decoded.ok());
      std::vector<std::string> wanted = all;
      wanted[i] = none[i];
      CHECK(Print(*decoded) == wanted);
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

  TEST_CASE("control: the warnings of a reply are lines that fit") {
    using Lines = std::vector<std::string>;
    CHECK(MakeReplyWarnings({}).empty());
    const Lines odd = {"/a\nb\x7f: \xc3\xa4", ""};
    CHECK(MakeReplyWarnings(odd) == Lines{"/a b : \xc3\xa4", ""});
    CHECK(MakeReplyWarnings(Lines{std::string(512, 'a')}) == Lines{std::string(512, 'a')});
    CHECK(MakeReplyWarnings(Lines{std::string(513, 'a')}) == Lines{std::string(509, 'a') + "..."});
    // No character is cut in two: the 2 bytes of this one are the 509th and the 510th.
    const std::string before(508, 'a');
    CHECK(MakeReplyWarnings(Lines{before + "\xc3\xa4" + before}) == Lines{before + "..."});
    // The largest reply has a message.
    SequenceReply reply{std::vector<uint64_t>(64, ~uint64_t{0}),
                        std::vector<uint64_t>(64, ~uint64_t{0}), 4};
    reply.warnings = MakeReplyWarnings(Lines(64, std::string(513, 'a')));
    CHECK(reply.warnings == Lines(64, std::string(509, 'a') + "..."));
    CHECK(EncodeReply(reply, 1).ok());
    const std::vector<uint64_t> many(kOpeningsMax, ~uint64_t{0});
    const SequencesReply largest{many,
                                 many,
                                 std::vector<int32_t>(kOpeningsMax, 4),
                                 reply.warnings,
                                 -1,
                                 ~uint32_t{0},
                                 std::string(64, 'f'),
                                 std::string(2048, 't')};
    CHECK(EncodeReply(largest, 1).ok());
    reply.warnings = MakeReplyWarnings(Lines(65, "a"));
    REQUIRE(reply.warnings.size() == 64);
    CHECK(reply.warnings[62] == "a");
    CHECK(reply.warnings[63] == "... and 2 more warnings");
    reply.warnings.emplace_back();
    CHECK(ErrorFieldOf(EncodeReply(reply, 1).status()) == "warnings");
  }

  TEST_CASE("control: doubles keep every bit, and must be doubles") {
    OpenSequenceRequest open = SampleOpen();
    // msgpack-c's own packer writes 1.0 as the integer 1.
    for (double value : {1.0, 0.0, -0.0, 2.0, 1e300, std::nan("")}) {
      OpenSequenceRequest exact = open;
      exact.numbers[0].second = value;
      const absl::StatusOr<Request> decoded = DecodeWhole(MustEncode(exact));
      REQUIRE(decoded.ok());
      const double back = std::get<OpenSequenceRequest>(*decoded).numbers[0].second;
      CHECK(std::memcmp(&back, &value, sizeof(value)) == 0);
    }
    const absl::StatusOr<Request> decoded = DecodeWhole(MustEncode(open));
    REQUIRE(decoded.ok());
    CHECK(std::get<OpenSequenceRequest>(*decoded).numbers == open.numbers);
    for (const msgpack::object& wrong :
         {msgpack::object(0.5f), msgpack::object(1), msgpack::object(true), msgpack::object()}) {
      const absl::Status status = DecodeNumbers({{Text("temperature"), wrong}}).status();
      CHECK(ErrorFieldOf(status) == "temperature");
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
    CHECK(field_of(4, {0}) == "version");
    CHECK(field_of(4, {1}) == "version");
    CHECK(field_of(5, {9}) == "version");  // 0x0902
    CHECK(field_of(6, {0, 0}) == "type");
    CHECK(field_of(6, {23, 0}) == "type");
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
          &OpenSequenceRequest::num_no_repeat_ngram_whitelist,
          &OpenSequenceRequest::num_grammar_bytes}) {
      OpenSequenceRequest with = open;
      with.*count = 1;
      CHECK(DecodeHeader(MustEncode(with), ControlReader::kDaemon)->num_fds == 1);
    }
    std::vector<uint8_t> message = MustEncode(open);
    CHECK(DecodeHeader(message, ControlReader::kDaemon)->num_fds == 0);
    message[16] = 2;
    CHECK(ErrorFieldOf(DecodeHeader(message, ControlReader::kDaemon).status()) == "num_fds");
  }

  TEST_CASE(
      "control: a region of device memory comes with a descriptor for each piece, up to 250") {
    RegisterDeviceRegionRequest region{{2, "GPU-1", "", 1, 0, 1, 1, 1, {}}};
    for (const size_t num_pieces : {size_t{0}, size_t{1}, kMessageFdsMax}) {
      region.spec.piece_bytes.assign(num_pieces, ~uint64_t{0});
      const std::vector<uint8_t> message = MustEncode(region);
      CHECK(DecodeHeader(message, ControlReader::kDaemon)->num_fds == num_pieces);
      const absl::StatusOr<Request> decoded = DecodeWhole(message);
      REQUIRE(decoded.ok());
      CHECK(std::get<RegisterDeviceRegionRequest>(*decoded).spec.piece_bytes ==
            region.spec.piece_bytes);
    }
    std::vector<uint8_t> message = MustEncode(region);
    message[16] = static_cast<uint8_t>(kMessageFdsMax + 1);
    const absl::Status too_many = DecodeHeader(message, ControlReader::kDaemon).status();
    CHECK(ErrorFieldOf(too_many) == "num_fds");
    CHECK(std::string(too_many.message()).find("num_fds = 251") != std::string::npos);
    region.spec.piece_bytes.push_back(1);
    CHECK(ErrorFieldOf(EncodeRequest(region, 1).status()) == "piece_bytes");
    // The reader has the same bound for every writer.
    region.spec.piece_bytes.resize(1);
    MessageParts parts(MustEncode(region));
    msgpack::zone zone;
    parts.body.back().second = msgpack::object(std::vector<uint64_t>(251, 1), zone);
    const absl::Status too_long = DecodeWhole(parts.Join()).status();
    CHECK(ErrorFieldOf(too_long) == "piece_bytes");
    CHECK(std::string(too_long.message()).find("250") != std::string::npos);
  }

  TEST_CASE("control: another version names both and says whom to upgrade") {
    std::vector<uint8_t> message = MustEncode(MappedRequest{});
    message[4] = 3;
    const absl::Status newer = DecodeHeader(message, ControlReader::kDaemon).status();
    CHECK(ErrorCodeOf(newer) == SPECD_ERROR_VERSION);
    CHECK(std::string(newer.message()) ==
          "the library speaks protocol version 3, the daemon 2; upgrade the daemon");
    CHECK(std::string(DecodeHeader(message, ControlReader::kLibrary).status().message()) ==
          "the daemon speaks protocol version 3, the library 2; upgrade the library");
    message[4] = 1;
    CHECK(std::string(DecodeHeader(message, ControlReader::kDaemon).status().message()) ==
          "the library speaks protocol version 1, the daemon 2; upgrade the library");
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
}

}  // namespace
}  // namespace specd
