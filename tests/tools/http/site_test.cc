// Site answers for the target that was asked for, and ends no request but the client's.
#include "tools/http/site.h"

#include <doctest/doctest.h>

#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/tools/http/http_events.h"

namespace specd::http {
namespace {

struct Served {
  TextHub hub{{}, 1, [] {}};
  std::vector<std::string> aborted = {};
  std::vector<std::promise<absl::Status>> results = {};  // of them
  Site site{Options()};

  Served() { hub.Take(0, {Event(TextEventKind::kOpen, 1, 0, "")}, true, 0); }
  Site::Options Options() {
    Site::Options options;
    options.counters = "/nonexistent";
    options.hub = &hub;
    options.abort = [this](const std::string& name) {
      aborted.push_back(name);
      return AbortResult(results.emplace_back().get_future());
    };
    return options;
  }
  HttpAnswer Ask(const std::string& target, const std::string& method,
                 const std::string& body = "") {
    HttpRequest request;
    request.method = method;
    request.target = target;
    request.host = "localhost";
    request.body = body;
    return site.Answer(request);
  }
  HttpAnswer Get(const std::string& target, const std::string& method = "GET") {
    HttpAnswer answer = Ask(target, method);
    return answer.later ? answer.later(true).value() : answer;
  }
};

}  // namespace

TEST_SUITE("unit") {
  TEST_CASE("a stream is behind a slash, and nothing else has parameters") {
    Served served;
    CHECK(served.Get("/v1/streams/r").status == 200);
    CHECK(served.Get("/v1/streams/r?format=chat").status == 200);
    CHECK(served.Get("/v1/streams").status == 200);
    CHECK(served.Get("/v1/streams?").status == 200);
    for (const char* none : {"/v1/streamsXr", "/v1/streamsr", "/v1/streams/", "/metricsX?x=1"}) {
      CAPTURE(none);
      CHECK(served.Get(none).status == 404);
    }
    for (const char* path : {"/", "/live", "/ready", "/metrics", "/v1/streams"}) {
      CAPTURE(path);
      const HttpAnswer answer = served.Get(std::string(path) + "?format=chat");
      CHECK(answer.status == 400);
      CHECK(answer.body.find("format is no parameter") != std::string::npos);
    }
    CHECK(served.Get("/v1/detokenize?x=1", "POST").status == 400);
  }

  TEST_CASE("DELETE ends the request, and its answer is the daemon's") {
    Served served;
    HttpRequest request;
    request.method = "DELETE";
    request.target = "/v1/streams/a%2Fb";
    request.host = "localhost";
    const struct {
      absl::Status says;
      unsigned status;
      std::string_view body;
    } kCases[] = {
        {absl::OkStatus(), 200, R"({"request_id":"a/b","aborted":true})"},
        {absl::NotFoundError("no stream of it runs"), 404, "no stream of it runs"},
        {absl::DeadlineExceededError("no answer came"), 503, "no answer came"},
        {absl::ResourceExhaustedError("4096 others wait"), 503, "4096 others wait"},
    };
    for (const auto& each : kCases) {
      CAPTURE(each.status);
      const HttpAnswer answer = served.site.Answer(request);
      // A full server refuses clients that read streams, and ends requests nevertheless.
      CHECK_FALSE(answer.takes_place);
      REQUIRE(answer.later);
      CHECK_FALSE(answer.later(false).has_value());
      const std::optional<HttpAnswer> gave_up = answer.later(true);
      REQUIRE(gave_up.has_value());
      CHECK(gave_up->status == 503);
      CHECK(gave_up->headers.at(0).first == "Retry-After");
      served.results.back().set_value(each.says);
      const std::optional<HttpAnswer> given = answer.later(false);
      REQUIRE(given.has_value());
      CHECK(given->status == each.status);
      CHECK(given->body.find(each.body) != std::string::npos);
    }
    CHECK(served.aborted == std::vector<std::string>(4, "a/b"));
    CHECK(served.Get("/v1/streams/r?format=chat", "DELETE").status == 400);
    CHECK(served.Get("/v1/streams/", "DELETE").status == 404);
    CHECK(served.Get("/v1/streams", "DELETE").status == 405);
    CHECK(served.Get("/v1/streams/r", "POST").headers ==
          std::vector<std::pair<std::string, std::string>>{{"Allow", "GET, HEAD, DELETE"}});
    request.host = "evil.example";
    CHECK(served.site.Answer(request).status == 421);
    request.host = "127.0.0.1:9464";
    for (const char* other : {"cross-site", "same-site"}) {
      request.fetch_site = other;
      CHECK(served.site.Answer(request).status == 403);
    }
    CHECK(served.aborted.size() == 4);
  }

  TEST_CASE("a client that finds no place to wait ends nothing") {
    Served served;
    CHECK(served.Ask("/v1/streams/r", "DELETE").later);
    CHECK(served.aborted.empty());
  }

  TEST_CASE("a body that nobody reads is refused") {
    Served served;
    const std::pair<const char*, const char*> kCases[] = {
        {"GET", "/"}, {"GET", "/metrics"}, {"GET", "/v1/streams/r"}, {"DELETE", "/v1/streams/r"}};
    for (const auto& [method, target] : kCases) {
      const HttpAnswer answer = served.Ask(target, method, "{}");
      CHECK(answer.status == 400);
      CHECK(answer.body.find("body has 2 bytes") != std::string::npos);
    }
    CHECK(served.aborted.empty());
  }

  TEST_CASE("a client that leaves ends its own request alone") {
    const std::string target = "/v1/streams/r?abort_on_disconnect=1";
    Served runs;
    runs.Get(target).events.on_left();
    CHECK(runs.aborted == std::vector<std::string>{"r"});

    // It is still reading the text of a stream that has ended.
    Served ended;
    const HttpAnswer of_ended = ended.Get(target);
    ended.hub.Take(0, {Event(TextEventKind::kEnd, 1, 0, "ab")}, true, 0);
    of_ended.events.on_left();
    CHECK(ended.aborted.empty());

    // Another stream has the name now.
    ended.hub.Take(0, {Event(TextEventKind::kOpen, 2, 0, "")}, true, 0);
    of_ended.events.on_left();
    CHECK(ended.aborted.empty());
    ended.Get(target).events.on_left();
    CHECK(ended.aborted == std::vector<std::string>{"r"});
  }
}

}  // namespace specd::http
