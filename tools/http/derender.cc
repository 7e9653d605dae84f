#include "tools/http/derender.h"

#include <fmt/format.h>

#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "detokenizer/stop_matcher.h"
#include "ipc/base/valid_text.h"
#include "ipc/events/event_fields.h"
#include "tools/toy_engine/json_string.h"

namespace specd::http {
namespace {

using grammar::JsonType;
using grammar::JsonValue;
using toy::QuoteJson;

constexpr std::string_view kFirst[] = {"stop", "include_stop", "skip_special_tokens", "min_tokens"};
constexpr std::string_view kAlways[] = {"request_id", "ids", "offset", "finish"};

absl::Status Wrong(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{} {}", ValidText(field, 40), what));
}

bool IsOneOf(std::string_view name, std::span<const std::string_view> names) {
  for (const std::string_view each : names) {
    if (each == name) return true;
  }
  return false;
}

// Readers of members leave the default where there is none.
absl::Status ReadBool(const JsonValue& body, std::string_view name, bool* out) {
  const JsonValue* const value = body.Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (value->type != JsonType::kBoolean) return Wrong(name, "must be true or false");
  *out = value->boolean;
  return absl::OkStatus();
}

bool ToNumber(const JsonValue& value, uint64_t max, uint64_t* out) {
  return value.type == JsonType::kNumber &&
         value.text.find_first_not_of("0123456789") == std::string::npos &&
         absl::SimpleAtoi(value.text, out) && *out <= max;
}

absl::Status ReadNumber(const JsonValue& body, std::string_view name,
                        std::optional<uint64_t>* out) {
  constexpr uint64_t kMax = uint64_t{1} << 40;
  const JsonValue* const value = body.Find(name);
  if (value == nullptr) return absl::OkStatus();
  uint64_t number = 0;
  if (!ToNumber(*value, kMax, &number)) return Wrong(name, fmt::format("must be 0 .. {}", kMax));
  *out = number;
  return absl::OkStatus();
}

absl::Status ReadIds(const JsonValue& body, std::vector<TokenId>* out) {
  const JsonValue* const ids = body.Find("ids");
  if (ids == nullptr) return absl::OkStatus();
  if (!ids->IsArray() || ids->values.size() > Derender::kIdsMax) {
    return Wrong("ids", fmt::format("must be a list of up to {} numbers", Derender::kIdsMax));
  }
  for (const JsonValue& each : ids->values) {
    uint64_t id = 0;
    if (!ToNumber(each, std::numeric_limits<TokenId>::max(), &id)) {
      return Wrong("ids", "must hold token ids, 0 .. 2147483647");
    }
    out->push_back(static_cast<TokenId>(id));
  }
  return absl::OkStatus();
}

absl::Status ReadStops(const JsonValue& body, std::vector<std::string>* out) {
  const JsonValue* const stop = body.Find("stop");
  if (stop == nullptr) return absl::OkStatus();
  if (stop->IsString()) return out->push_back(stop->text), absl::OkStatus();
  if (!stop->IsArray()) return Wrong("stop", "must be a string or a list of strings");
  for (const JsonValue& each : stop->values) {
    if (!each.IsString()) return Wrong("stop", "must be a string or a list of strings");
    out->push_back(each.text);
  }
  return absl::OkStatus();
}

absl::Status CheckNames(const JsonValue& body) {
  if (!body.IsObject()) return Wrong("body", "must be a JSON object");
  for (const std::string& name : body.names) {
    if (IsOneOf(name, kFirst) || IsOneOf(name, kAlways)) continue;
    return Wrong(name, fmt::format("is no field; there are {} and {}", fmt::join(kAlways, ", "),
                                   fmt::join(kFirst, ", ")));
  }
  const JsonValue* const id = body.Find("request_id");
  if (id == nullptr || (id->IsString() && id->text.size() <= kRequestIdBytesMax)) {
    return absl::OkStatus();
  }
  return Wrong("request_id", fmt::format("must be a string of up to {} bytes", kRequestIdBytesMax));
}

// A node of the automaton for each byte, and the string itself twice.
size_t StopsBytes(const std::vector<std::string>& stops) {
  constexpr size_t kByteBytes = 23;
  size_t bytes = 0;
  for (const std::string& each : stops) bytes += kByteBytes * each.size() + 2 * sizeof(each);
  return bytes;
}

}  // namespace

absl::Status Derender::Body::Read(const JsonValue& json) {
  absl::Status status = CheckNames(json);
  if (status.ok()) status = ReadIds(json, &ids);
  is_last = json.IsObject() && json.Find("request_id") == nullptr;
  if (status.ok()) status = ReadBool(json, "finish", &is_last);
  if (status.ok()) status = ReadBool(json, "include_stop", &include_stop);
  if (status.ok()) status = ReadBool(json, "skip_special_tokens", &skip_special_tokens);
  if (status.ok()) status = ReadNumber(json, "min_tokens", &min_tokens);
  if (status.ok()) status = ReadStops(json, &stops);
  for (const std::string_view name : kFirst) {
    if (option.empty() && json.Find(name) != nullptr) option = name;
  }
  return status;
}

absl::StatusOr<std::string> Derender::Answer(const std::string& text, int64_t now_ns) {
  const auto json = grammar::ParseJson(text);
  if (!json.ok()) return json.status();
  Body body;
  std::optional<uint64_t> offset;
  absl::Status status = body.Read(**json);
  if (status.ok()) status = ReadNumber(**json, "offset", &offset);
  if (!status.ok()) return status;
  Fit(now_ns);

  const JsonValue* const id = (*json)->Find("request_id");
  const std::string name = id == nullptr ? "" : id->text;
  const auto found = by_id_.find(name);
  const bool is_first = id == nullptr || found == by_id_.end();
  if (is_first) {
    if (offset.value_or(0) != 0) {
      return absl::FailedPreconditionError(
          fmt::format("offset = {}: the request has no state here, or has none any more; give all "
                      "of its ids from offset 0 on",
                      *offset));
    }
    absl::StatusOr<Requests> made = Make(body, name);
    if (!made.ok()) return made.status();
    if (id == nullptr) return Push(body, &made->front());
    held_bytes_ += made->front().HeldBytes();
    requests_.splice(requests_.end(), *made);
    by_id_[name] = std::prev(requests_.end());
  } else {
    requests_.splice(requests_.end(), requests_, found->second);
  }
  Request& request = requests_.back();
  request.used_ns = now_ns;
  const uint64_t begin = offset.value_or(request.tokens);
  if (!is_first) {
    // The answer before was lost.
    if (offset.has_value() && begin == request.answered_at && body == request.body) {
      return request.answer;
    }
    if (begin != request.tokens) {
      return absl::FailedPreconditionError(
          fmt::format("offset = {}: the request has {} tokens; give the ids from there on", begin,
                      request.tokens));
    }
    if (!body.option.empty()) return Wrong(body.option, "belongs to the first body of a request");
  }
  held_bytes_ -= request.HeldBytes();
  request.answered_at = begin;
  request.answer = Push(body, &request);
  request.body = std::move(body);
  held_bytes_ += request.HeldBytes();
  const std::string answer = request.answer;
  Fit(now_ns);
  return answer;
}

absl::StatusOr<Derender::Requests> Derender::Make(const Body& body, const std::string& id) const {
  const TextOptions options = {.skip_special_tokens = body.skip_special_tokens,
                               .include_stop = body.include_stop,
                               .min_tokens = body.min_tokens.value_or(0)};
  std::shared_ptr<const StopSet> stops;
  if (!body.stops.empty()) {
    auto made = StopSet::Create(body.stops);
    if (!made.ok()) return Wrong("stop", std::string(made.status().message()));
    stops = *std::move(made);
  }
  Requests requests;
  requests.push_back({.id = id,
                      .text = TextStream(vocabulary_, std::move(stops), options),
                      .stops_bytes = StopsBytes(body.stops)});
  return requests;
}

std::string Derender::Push(const Body& body, Request* request) {
  TextStream& text = request->text;
  TextChunk chunk;
  const uint64_t byte_offset = text.text_offset();
  const uint64_t offset = request->tokens;
  for (const TokenId id : body.ids) {
    if (text.ended()) break;
    ++request->tokens;
    const std::optional<int> stop = text.Push(id, false, &chunk);
    if (stop.has_value()) {
      request->stop_json = QuoteJson(text.stops()->TextOf(*stop));
    }
  }
  if (body.is_last) text.Finish(TextEnd::kFlush, &chunk);
  return fmt::format(
      R"({{"request_id":{},"offset":{},"tokens":{},"byte_offset":{},"text":{},"stop":{},"finished":{}}})",
      request->id.empty() ? "null" : QuoteJson(request->id), offset, request->tokens, byte_offset,
      QuoteJson(chunk.text), request->stop_json, text.ended());
}

void Derender::Erase(Requests::iterator at) {
  held_bytes_ -= at->HeldBytes();
  by_id_.erase(at->id);
  requests_.erase(at);
}

void Derender::Fit(int64_t now_ns) {
  while (!requests_.empty() && (now_ns - requests_.front().used_ns >= kAgeNs ||
                                requests_.size() > kRequestsMax || held_bytes_ > kHeldBytesMax)) {
    Erase(requests_.begin());
  }
}

}  // namespace specd::http
