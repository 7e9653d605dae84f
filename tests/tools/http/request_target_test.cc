// RequestTarget is read as it was sent, and names that could lead elsewhere are known.
#include "tools/http/request_target.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tools/http/listen_address.h"

namespace specd::http {
namespace {

const std::vector<std::string_view> kNames = {"from", "format"};

std::string WhyNot(std::string_view target) {
  return std::string(ParseTarget(target, kNames).status().message());
}

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("a target has a path as it was sent, and values without percents") {
    const auto target = ParseTarget("/v1/streams/a%2Fb?format=%63hat&from=", kNames);
    REQUIRE(target.ok());
    CHECK(target->path == "/v1/streams/a%2Fb");
    REQUIRE(target->Find("format") != nullptr);
    CHECK(*target->Find("format") == "chat");
    CHECK(target->Find("from")->empty());
    CHECK(target->Find("usage") == nullptr);
    CHECK(ParseTarget("/?", kNames)->values.empty());
    CHECK(ParseTarget("/?&&from=1&", kNames)->values.size() == 1);
  }

  TEST_CASE("a target that cannot be read is refused by name") {
    CHECK(WhyNot("") == " is no path; a path begins with /");
    CHECK(WhyNot("http://x/") == "http://x/ is no path; a path begins with /");
    CHECK(WhyNot("/?what=1") == "what is no parameter; here are from, format");
    CHECK(WhyNot("/?from=1&from=2") == "from is there twice; give one value");
    CHECK(WhyNot("/?from=%4") == "from=%4 has a % without two hexadecimal digits");
    CHECK(WhyNot("/?\xff=1") == "\\xff is no parameter; here are from, format");
  }

  TEST_CASE("percents become bytes, whatever they are") {
    CHECK(DecodePercents("a%2fB%2F%00") == std::string("a/B/\0", 5));
    CHECK(DecodePercents("") == "");
    for (const char* wrong : {"%", "%4", "%zz", "a%4g"}) CHECK(!DecodePercents(wrong).has_value());
  }

  TEST_CASE("a host is known if no other name can lead to it") {
    const std::vector<std::string> names = {"specd.example.org"};
    for (const char* known : {"127.0.0.1", "127.0.0.1:9464", "[::1]", "[::1]:9464", "localhost",
                              "LocalHost:1", "192.0.2.7:80", "specd.example.org:9464"}) {
      CAPTURE(known);
      CHECK(IsKnownHost(known, names));
    }
    for (const char* unknown : {"", "evil.example", "evil.example:9464", "127.0.0.1.evil.example",
                                "localhost.evil.example", "[::1", "::1", "specd.example.org.x"}) {
      CAPTURE(unknown);
      CHECK_FALSE(IsKnownHost(unknown, names));
    }
  }

  TEST_CASE("only loopback and paths are private") {
    for (const char* text : {"127.0.0.1:9464", "127.9.9.9:0", "[::1]:80", "[::ffff:127.0.0.1]:80",
                             "unix:/run/specd/http.sock"}) {
      CAPTURE(text);
      REQUIRE(ParseListenAddress(text).ok());
      CHECK(ParseListenAddress(text)->is_private);
    }
    for (const char* text : {"0.0.0.0:9464", "[::]:1", "192.0.2.1:65535", "[::ffff:8.8.8.8]:80"}) {
      CAPTURE(text);
      REQUIRE(ParseListenAddress(text).ok());
      CHECK_FALSE(ParseListenAddress(text)->is_private);
    }
  }
}

}  // namespace specd::http
