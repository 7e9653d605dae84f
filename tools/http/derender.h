// Derender turns ids into text for clients of POST /v1/detokenize, request by request, with a
// TextStream for each request id.
//
// A body is a JSON object: request_id, ids, offset (tokens of the request before these ids), finish
// (no more come), and in the first body of a request stop, include_stop, skip_special_tokens and
// min_tokens. An answer that was lost is asked for again with the same body, and is the same.
// Without a request_id a body is a request of its own. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "detokenizer/text_stream.h"
#include "detokenizer/vocabulary.h"
#include "speculative/grammar/base/json_value.h"

namespace specd::http {

class Derender {
 public:
  // The request that was used longest ago gives way to one more, or if answers, the ids that they
  // were for, and stop strings take more room.
  static constexpr size_t kRequestsMax = 1024;
  static constexpr size_t kHeldBytesMax = size_t{64} << 20;
  static constexpr int64_t kAgeNs = 300'000'000'000;  // since it was used
  static constexpr size_t kIdsMax = 65536;            // of a body

  explicit Derender(const Vocabulary* vocabulary) : vocabulary_(vocabulary) {}

  // The answer as JSON. INVALID_ARGUMENT names the field; FAILED_PRECONDITION: these are not the
  // ids that come next.
  absl::StatusOr<std::string> Answer(const std::string& body, int64_t now_ns);

 private:
  // What makes two bodies the same, beside the offset.
  struct Body {
    std::vector<TokenId> ids = {};
    bool is_last = false;
    // Of the first body of a request.
    std::string_view option = "";  // a name of those that it has
    bool include_stop = false;
    bool skip_special_tokens = true;
    std::optional<uint64_t> min_tokens = {};
    std::vector<std::string> stops = {};

    absl::Status Read(const grammar::JsonValue& json);
    friend bool operator==(const Body&, const Body&) = default;
  };
  struct Request {
    std::string id;
    TextStream text;
    size_t stops_bytes = 0;  // that the stop strings take
    std::string stop_json = "null";
    uint64_t tokens = 0;
    uint64_t answered_at = 0;  // tokens before the last answer
    std::string answer = {};   // the last one
    Body body = {};            // that it was for
    int64_t used_ns = 0;

    size_t HeldBytes() const {
      return stops_bytes + answer.size() + body.ids.size() * sizeof(TokenId);
    }
  };
  using Requests = std::list<Request>;  // the one that was used longest ago first

  absl::StatusOr<Requests> Make(const Body& body, const std::string& id) const;
  static std::string Push(const Body& body, Request* request);
  void Erase(Requests::iterator at);
  void Fit(int64_t now_ns);

  const Vocabulary* const vocabulary_;
  Requests requests_;
  absl::flat_hash_map<std::string, Requests::iterator> by_id_;
  size_t held_bytes_ = 0;
};

}  // namespace specd::http
