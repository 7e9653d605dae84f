// HttpServer answers requests over TCP or a unix socket for specd-http: with a body, or with
// server-sent events.
//
// It trusts no client. A connection has one request and one answer. A request has a bounded size
// and a bounded time. The kinds of clients have places of their own: those that have not sent a
// request yet, those that get an answer, those that wait for one, and those with events. So silent
// clients push out silent clients only. A client with events that reads nothing for a while is
// closed; it may come again and go on. This is the only file that includes Boost.Beast. One thread,
// but for Wake.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/http/exchange.h"

namespace specd::http {

class HttpServer {
 public:
  // Of those that say nothing, and again of those that get an answer: then the oldest gives way.
  static constexpr size_t kClientsMax = 64;
  static constexpr size_t kWaitingMax = 256;  // for an answer with a body; further ones get 503
  static constexpr size_t kHeadBytesMax = 8192;
  static constexpr size_t kBodyBytesMax = size_t{1} << 20;
  static constexpr int64_t kClientMs = 5000;  // for the request, and again for the answer
  static constexpr int64_t kSlowMs = 60'000;  // for a piece of events
  static constexpr int64_t kTickMs = 100;

  struct Options {
    std::string listen;  // unix:PATH, 127.0.0.1:9464 or [::1]:9464; port 0: one that is free
    std::vector<uint32_t> uids = {};  // that may connect to PATH besides the process's own
    size_t streams_max = 1024;        // clients with events; further ones get 503
    int64_t ping_ms = 15'000;         // a client hears something at least so often
    int64_t patience_ms = 5000;       // that a request may wait for its answer
    std::function<HttpAnswer(const HttpRequest&)> answer;
    std::function<void()> look;  // called every kTickMs
  };
  static absl::StatusOr<HttpServer> Create(Options options);
  HttpServer(HttpServer&&) noexcept;
  HttpServer& operator=(HttpServer&&) = delete;
  ~HttpServer();

  // http://127.0.0.1:9464, or unix:PATH
  std::string address() const;
  // Serves until SIGINT or SIGTERM.
  void Run();
  // There may be more for clients that wait. From any thread, while the server lives.
  void Wake();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace specd::http
