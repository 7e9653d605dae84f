// StreamEvents are the server-sent events of one stream, or of all, out of a TextHub.
//
// A client is a place in the text, so it costs no buffer, and a slow one gets what it missed in one
// larger piece. The hub must outlive the events. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "tools/http/exchange.h"
#include "tools/http/sse_format.h"
#include "tools/http/text_hub.h"

namespace specd::http {

// The place of a client in one stream.
class StreamCursor {
 public:
  StreamCursor(const TextHub* hub, uint64_t stream, const SseFormat* format, StreamFacts facts,
               uint64_t offset)
      : hub_(hub), stream_(stream), format_(format), facts_(std::move(facts)), offset_(offset) {}

  StreamState Next(std::string* out);

 private:
  StreamState End(const TextEvent& end, std::string* out);
  StreamState Lose(const std::string& why, std::string* out);

  const TextHub* hub_;
  uint64_t stream_;
  const SseFormat* format_;
  StreamFacts facts_;
  uint64_t offset_;
  bool is_open_ = false;
};

// specd's events of all streams, those that run first of all. They have no end.
class AllStreams {
 public:
  explicit AllStreams(const TextHub* hub) : hub_(hub) {}

  StreamState Next(int64_t now_ns, std::string* out);

 private:
  const TextHub* hub_;
  int64_t looked_ns_ = 0;
  struct Place {
    StreamCursor cursor;
    bool has_ended = false;
  };
  std::map<uint64_t, Place> places_;
};

}  // namespace specd::http
