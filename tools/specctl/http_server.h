// HttpServer answers GET requests over TCP with what a function says, for `specctl serve`.
//
// It trusts no client. A connection has one request and one answer, and a bounded time for both; a
// request is a head of bounded size and no body. If too many clients are there, the oldest gives
// way. This is the only file that includes Boost.Beast. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace specd::ctl {

struct HttpAnswer {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
};

class HttpServer {
 public:
  static constexpr size_t kClientsMax = 64;
  static constexpr size_t kHeadBytesMax = 8192;
  static constexpr int64_t kClientMs = 5000;  // for the request, and again for the answer

  struct Options {
    std::string address;  // 127.0.0.1:9464 or [::1]:9464; port 0: one that is free
    std::function<HttpAnswer(std::string_view path)> answer;
    std::function<void()> look;  // called again and again
    int64_t look_ms = 500;
  };
  static absl::StatusOr<HttpServer> Create(Options options);
  HttpServer(HttpServer&&) noexcept;
  HttpServer& operator=(HttpServer&&) = delete;
  ~HttpServer();

  // The address that clients connect to.
  std::string address() const;
  bool is_loopback() const;
  // Serves until SIGINT or SIGTERM.
  void Run();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace specd::ctl
