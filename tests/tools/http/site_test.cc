// Site answers for the target that was asked for, and ends no request but the client's.
#include "tools/http/site.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/tools/http/http_events.h"

namespace specd::http {
namespace {

struct Served {
  TextHub hub{{}, 1, [] {}};
  std::vector<std::string> aborted = {};
  Site site{Options()};

  Served() { hub.Take(0, {Event(TextEventKind::kOpen, 1, 0, "")}, true, 0); }
  Site::Options Options() {
    Site::Options options;
    options.counters = "/nonexistent";
    options.hub = &hub;
    options.abort = [this](const std::string& name) { aborted.push_back(name); };
    return options;
  }
  HttpAnswer Get(const std::string& target, const std::string& method = "GET") {
    HttpRequest request;
    request.method = method;
    request.target = target;
    request.host = "localhost";
    return site.Answer(request, true).value();
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
