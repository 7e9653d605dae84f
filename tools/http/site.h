// Site answers the requests of specd-http: the streams of a daemon, its counters and its health,
// ids to text, and a page that shows all streams.
//
// It looks at the name of the host and at the token before anything else. One thread, HttpServer's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/base/awake_time.h"
#include "ipc/counters/counter_snapshot.h"
#include "tools/http/abort_queue.h"
#include "tools/http/derender.h"
#include "tools/http/exchange.h"
#include "tools/http/health.h"
#include "tools/http/request_target.h"
#include "tools/http/text_hub.h"

namespace specd::http {

class Site {
 public:
  struct Options {
    std::string counters;            // the daemon's counters file
    std::string token;               // empty: everybody may ask
    std::vector<std::string> hosts;  // further names of this server
    std::string model;               // the name in OpenAI's framings
    const TextHub* hub = nullptr;
    // AbortQueue::Abort
    std::function<AbortResult(const std::string& request_id)> abort;
    Derender* derender = nullptr;  // null: there is no tokenizer
  };
  explicit Site(Options options);

  // For HttpServer.
  HttpAnswer Answer(const HttpRequest& request);
  void Look();

 private:
  std::optional<HttpAnswer> RefusedAtTheDoor(const HttpRequest& request,
                                             std::string_view path) const;
  bool HasToken(std::string_view authorization) const;
  absl::StatusOr<CounterSnapshot> ReadDaemon();
  HttpAnswer AnswerHealth(std::string_view path);
  HttpAnswer AnswerStream(const HttpRequest& request) const;
  // Nullopt: the stream may begin yet.
  std::optional<HttpAnswer> FindStream(const HttpRequest& request, const RequestTarget& target,
                                       const std::string& request_id, bool is_last) const;
  HttpAnswer AbortStream(const HttpRequest& request) const;
  absl::StatusOr<HttpAnswer> Begin(const HttpRequest& request, const RequestTarget& target,
                                   const std::string& request_id, uint64_t stream) const;
  HttpAnswer AnswerAllStreams() const;
  HttpAnswer AnswerIds(const HttpRequest& request);

  const Options options_;
  AwakeTime awake_;
  Health health_;
  int64_t looked_ns_ = 0;
};

}  // namespace specd::http
