// These types are what HttpServer and its site say to each other: requests, answers, and streams of
// events.
//
// Plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace specd::http {

struct HttpRequest {
  std::string method;
  std::string target;  // as it was sent
  std::string host;
  std::string authorization;
  std::string last_event_id;
  std::string fetch_site;  // Sec-Fetch-Site, which browsers send
  std::string body;
};

// What a call of EventStream::next has found.
enum class StreamState {
  kMore,  // something was appended, and there may be more
  kWait,  // there is nothing to send yet
  kEnd,   // something may have been appended, and it was the last
};

// Server-sent events of one client. It has no buffer: `next` appends what the client has not had,
// in one piece of bounded size. A slow client therefore gets larger pieces.
struct EventStream {
  std::function<StreamState(std::string* out)> next;
  // The client has gone before the end. It may be empty.
  std::function<void()> on_left = {};
};

// Status, head and body, or events, or a promise of them.
struct HttpAnswer {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  EventStream events = {};  // unless `next` is empty, they follow in the place of a body
  // For one of the places of clients that read streams. If it waits, `later` gives events.
  bool takes_place = false;
  // Unless empty, all else counts for nothing: the answer is what it returns, once it is no
  // nullopt. It is called once the client has a place, again whenever HttpServer::Wake was, and a
  // last time when the client's patience is over.
  std::function<std::optional<HttpAnswer>(bool is_last)> later = {};
};

}  // namespace specd::http
