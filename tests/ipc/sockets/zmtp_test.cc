// The publisher's and the puller's side of ZMTP 3: the bytes of rfc.zeromq.org/spec/23 and /37, in
// pieces of any size, and what a peer may not send.
#include "ipc/sockets/zmtp.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

namespace specd {
namespace {

using std::string_view_literals::operator""sv;
using Taken = std::vector<std::pair<ZmtpInput, std::string>>;

// The grammar of a greeting: signature, version, mechanism, as-server, filler (spec 23).
std::string Greeting(std::string_view version = "\3\1"sv, std::string_view mechanism = "NULL"sv) {
  std::string out("\xff\0\0\0\0\0\0\0\0\x7f"sv);
  out += version;
  out += mechanism;
  out.resize(12 + 20, '\0');
  out.resize(64, '\0');
  return out;
}

std::string Ready(std::string_view type) {
  std::string body("\5READY\x0bSocket-Type\0\0\0"sv);
  body.push_back(static_cast<char>(type.size()));
  body += type;
  return "\4" + std::string(1, static_cast<char>(body.size())) + body;
}

absl::Status Feed(ZmtpReader* reader, std::string_view bytes, Taken* taken) {
  return reader->Read(
      bytes, [taken](ZmtpInput kind, std::string_view body) { taken->emplace_back(kind, body); });
}

TEST_SUITE("unit") {
  TEST_CASE("zmtp: what a publisher says") {
    // READY of a PUB socket has 1 + 5 + 1 + 11 + 4 + 3 = 25 bytes.
    CHECK(ZmtpHello(ZmtpRole::kPublisher) == Greeting() + Ready("PUB"));
    CHECK(ZmtpHello(ZmtpRole::kPublisher)[64 + 1] == 25);
    CHECK(ZmtpMessage("ab", "c") == "\1\2ab\0\1c"sv);
    const std::string large = ZmtpMessage("", std::string(256, 'x'));
    CHECK(large == std::string("\1\0\2\0\0\0\0\0\0\1\0"sv) + std::string(256, 'x'));
    CHECK(ZmtpPong("\0\1tag"sv) == "\4\x08\4PONGtag"sv);
  }

  TEST_CASE("zmtp: subscriptions of both versions arrive, in pieces of any size") {
    const std::string all = Greeting("\3\0"sv) + Ready("SUB") + std::string("\0\4\1abc"sv) +
                            std::string("\0\1\1"sv) + std::string("\4\x0c\x09SUBSCRIBEde"sv) +
                            std::string("\0\2\0a"sv) + std::string("\4\x09\6CANCELde"sv) +
                            std::string("\4\x0b\4PING\0\1four"sv) + std::string("\4\5\4PONG"sv) +
                            std::string("\2\0\0\0\0\0\0\1\0\1"sv) + std::string(255, 'y');
    const Taken expected = {{ZmtpInput::kReady, ""},
                            {ZmtpInput::kSubscribe, "abc"},
                            {ZmtpInput::kSubscribe, ""},
                            {ZmtpInput::kSubscribe, "de"},
                            {ZmtpInput::kCancel, "a"},
                            {ZmtpInput::kCancel, "de"},
                            {ZmtpInput::kPing, std::string("\0\1four"sv)},
                            {ZmtpInput::kSubscribe, std::string(255, 'y')}};
    for (size_t piece = 1; piece <= all.size(); ++piece) {
      CAPTURE(piece);
      ZmtpReader reader(ZmtpRole::kPublisher);
      Taken taken;
      for (size_t at = 0; at < all.size(); at += piece) {
        REQUIRE(Feed(&reader, std::string_view(all).substr(at, piece), &taken).ok());
      }
      CHECK(reader.ready());
      CHECK(taken == expected);
    }
  }

  TEST_CASE("zmtp: damaged bytes have the same end in pieces of any size") {
    const std::string sound = Greeting() + Ready("SUB") + std::string("\0\4\1abc"sv) +
                              std::string("\4\x0c\x09SUBSCRIBEde"sv) +
                              std::string("\2\0\0\0\0\0\0\0\4\0abc"sv) +
                              std::string("\4\x0b\4PING\0\1four"sv);
    std::mt19937 random(11);
    int num_refused = 0;
    for (int trial = 0; trial < 20000; ++trial) {
      std::string damaged = sound;
      for (size_t i = random() % 3; i < 3; ++i) {
        damaged[random() % damaged.size()] = static_cast<char>(random() % 16 < 4 ? random() : 1);
      }
      ZmtpReader at_once(ZmtpRole::kPublisher);
      Taken expected;
      const absl::Status whole = Feed(&at_once, damaged, &expected);
      ZmtpReader in_pieces(ZmtpRole::kPublisher);
      Taken taken;
      absl::Status status;
      for (size_t at = 0; at < damaged.size() && status.ok();) {
        const size_t piece = 1 + random() % 20;
        status = Feed(&in_pieces, std::string_view(damaged).substr(at, piece), &taken);
        at += piece;
      }
      REQUIRE(taken == expected);
      REQUIRE(status == whole);
      num_refused += whole.ok() ? 0 : 1;
    }
    CHECK(num_refused > 1000);
    CHECK(num_refused < 19000);
  }

  TEST_CASE("zmtp: a peer that is no subscriber of ZMTP 3 is refused") {
    const std::string hello = Greeting() + Ready("SUB");
    struct Case {
      std::string bytes;
      const char* word;
    };
    const Case cases[] = {
        {"GET / HTTP/1.1", "greeting"},
        {std::string("\xff\0\0\0\0\0\0\0\1\x7f\1"sv),
         "ZMTP 2"},  // libzmq 3 waits for an answer here
        {Greeting("\2\0"sv), "ZMTP 2"},
        {Greeting("\3\1"sv, "CURVE"), "NULL"},
        {Greeting() + Ready("REQ"), "SUB"},
        {Greeting() + Ready("PUB"), "SUB"},
        {Greeting() + std::string("\4\6\5READY"sv), "socket type"},
        {Greeting() + std::string("\4\x0a\5READY\x0bSoc"sv), "cut short"},
        {Greeting() + std::string("\4\x0b\5READY\1x\0\0\1"sv), "cut short"},
        {Greeting() + std::string("\4\0"sv), "no name"},
        {Greeting() + std::string("\4\2\5R"sv), "no name"},
        {Greeting() + std::string("\0\2\1a"sv), "before READY"},
        {Greeting() + std::string("\4\x0a\x09SUBSCRIBE"sv), "not READY"},
        {hello + std::string("\1\2\1a"sv), "several frames"},
        {hello + std::string("\x08\1a"sv), "flags"},
        {hello + std::string("\2\0\0\0\0\0\0\x10\1"sv), "4097 bytes"},
        {hello + std::string("\2\xff\xff\xff\xff\xff\xff\xff\xff"sv), "bytes"},
    };
    for (const Case& refused : cases) {
      CAPTURE(refused.word);
      ZmtpReader reader(ZmtpRole::kPublisher);
      Taken taken;
      const absl::Status status = Feed(&reader, refused.bytes, &taken);
      CHECK(absl::IsInvalidArgument(status));
      CHECK(std::string(status.message()).find(refused.word) != std::string::npos);
    }
    ZmtpReader reader(ZmtpRole::kPublisher);
    Taken taken;
    std::string longest = hello + std::string("\2\0\0\0\0\0\0\x10\0\1"sv);
    longest.resize(longest.size() + 4095, 'x');
    CHECK(Feed(&reader, longest, &taken).ok());
    CHECK(taken.back().second == std::string(4095, 'x'));
  }

  TEST_CASE("zmtp: messages of two frames reach a puller, in pieces of any size") {
    // READY of a PULL socket has one byte more than that of a PUB.
    CHECK(ZmtpHello(ZmtpRole::kPuller) == Greeting() + Ready("PULL"));
    const std::string long_frame = std::string("\2\0\0\0\0\0\0\x10\0"sv) + std::string(4096, 'y');
    const std::string all = Greeting("\3\0"sv) + Ready("PUSH") + std::string("\1\1a\0\1b"sv) +
                            std::string("\4\x0b\4PING\0\1four"sv) + std::string("\1\0"sv) +
                            long_frame;
    const Taken expected = {
        {ZmtpInput::kReady, ""},    {ZmtpInput::kTopic, "a"},
        {ZmtpInput::kPayload, "b"}, {ZmtpInput::kPing, std::string("\0\1four"sv)},
        {ZmtpInput::kTopic, ""},    {ZmtpInput::kPayload, std::string(4096, 'y')}};
    for (size_t piece = 1; piece <= 200; ++piece) {
      CAPTURE(piece);
      ZmtpReader reader(ZmtpRole::kPuller);
      Taken taken;
      for (size_t at = 0; at < all.size(); at += piece) {
        REQUIRE(Feed(&reader, std::string_view(all).substr(at, piece), &taken).ok());
      }
      CHECK(taken == expected);
    }
  }

  TEST_CASE("zmtp: a peer that a puller cannot bound is refused") {
    const std::string hello = Greeting() + Ready("PUSH");
    const std::pair<std::string, const char*> cases[] = {
        {Greeting() + Ready("SUB"), "PUSH"},
        {Greeting() + Ready("REQ"), "PUSH"},
        {Greeting() + std::string("\1\1a"sv), "before READY"},
        {hello + std::string("\0\1a"sv), "one frame"},
        {hello + std::string("\1\1a\1\1b"sv), "more than two frames"},
        {hello + std::string("\5\5\4PING"sv), "more than two frames"},
        {hello + std::string("\3\0\0\0\0\0\0\x10\1"sv), "4097 bytes"},
        {hello + std::string("\1\1a\2\0\0\0\0\0\0\x10\1"sv), "4097 bytes"},
    };
    for (const auto& each : cases) {
      const std::string& bytes = each.first;
      const char* const word = each.second;
      CAPTURE(word);
      ZmtpReader reader(ZmtpRole::kPuller);
      Taken taken;
      const absl::Status status = Feed(&reader, bytes, &taken);
      CHECK(absl::IsInvalidArgument(status));
      CHECK(std::string(status.message()).find(word) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace specd
