#include "ipc/events/token_event.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "ipc/base/limits.h"
#include "ipc/base/msgpack_codec.h"
#include "ipc/events/wire_scores.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

// The bounds of specd/specd.h. The bytes of a batch are a second bound of its contents.
constexpr size_t kRequestIdBytesMax = 128;
constexpr std::string_view kTextTopics = "text/";
constexpr size_t kProfileBytesMax = 64;
constexpr size_t kStopStringsMax = 1024;
constexpr size_t kIdsMax = SessionLimits::kDraftMax + 1;
constexpr size_t kEventsMax = 65536;
constexpr size_t kStopStringBytesMax = 32 * 1024;

constexpr std::array<std::string_view, 3> kTokenKinds = {"open", "tokens", "end"};
constexpr std::array<std::string_view, 3> kTextKinds = {"open", "text", "end"};
constexpr std::string_view kCumulativeLogprob = "cumulative_logprob";
// The index is SPECD_FINISH_*. A stream that has not finished sends no reason.
constexpr std::array<std::string_view, 5> kFinishReasons = {"none", "stop", "length", "abort",
                                                            "error"};
static_assert(SPECD_FINISH_STOP == 1 && SPECD_FINISH_LENGTH == 2 && SPECD_FINISH_ABORT == 3 &&
              SPECD_FINISH_ERROR == 4);

template <size_t kSize>
void ReadName(MapReader* reader, std::string_view key,
              const std::array<std::string_view, kSize>& names, size_t first, uint32_t* out) {
  std::string name;
  reader->Read(key, &name, 16);
  if (!reader->ok()) return;
  for (size_t i = first; i < kSize; ++i) {
    if (names[i] == name) {
      *out = static_cast<uint32_t>(i);
      return;
    }
  }
  reader->Fail(key, fmt::format("= \"{}\" is unknown", name));
}

template <size_t kSize>
std::string_view NameAt(const std::array<std::string_view, kSize>& names, size_t index) {
  SPECD_CHECK(index < kSize);
  return names[index];
}

template <class Kind, size_t kSize>
Kind ReadKind(MapReader* reader, const std::array<std::string_view, kSize>& names) {
  uint32_t kind = 0;
  ReadName(reader, "kind", names, 0, &kind);
  return static_cast<Kind>(kind);
}

void ReadVersion(MapReader* reader) {
  uint32_t version = 0;
  reader->Read("v", &version);
  if (reader->ok() && version != kEventVersion) {
    reader->Fail("v", fmt::format("= {} but this reader knows {}; upgrade the {}", version,
                                  kEventVersion, version > kEventVersion ? "reader" : "publisher"));
  }
}

void WriteIdOrNil(MapWriter* writer, std::string_view key, TokenId id) {
  if (id == kNoToken) {
    writer->Nil(key);
  } else {
    writer->Field(key, id);
  }
}

// The one decoder of a whole payload: bytes to map, version, then `read`.
template <class Message, class ReadFn>
absl::StatusOr<Message> DecodePayload(std::string_view payload, std::string_view context,
                                      ReadFn read) {
  msgpack::object_handle body;
  if (absl::Status status = ParseMap(payload, &body); !status.ok()) return status;
  MapReader reader(body.get(), context);
  ReadVersion(&reader);
  Message message;
  read(&reader, &message);
  if (!reader.ok()) return reader.status();
  return message;
}

// A missing value stays NaN.
void ReadLogprob(MapReader* reader, double* out) {
  if (reader->Has(kCumulativeLogprob)) reader->Read(kCumulativeLogprob, out);
}

// ---- token batch --------------------------------------------------------------------------------

// The keys of an opening that are left out where they say nothing.
size_t NumOptional(const TokenEvent& opening) {
  return (opening.profile.empty() ? 0u : 1u) + (opening.forked_from == 0 ? 0u : 1u) +
         (opening.prompt_tail.empty() ? 0u : 1u) + (opening.output_tail.empty() ? 0u : 1u);
}

void WriteTokenEvent(MapWriter* writer, const TokenEvent& event) {
  const std::array<size_t, 3> num_fields = {9, 7, 6};
  const bool has_logprobs = event.kind == TokenEventKind::kTokens
                                ? !event.logprobs.empty()
                                : !std::isnan(event.cumulative_logprob);
  writer->BeginMap(num_fields.at(static_cast<size_t>(event.kind)) + (has_logprobs ? 1 : 0) +
                   (event.scores.empty() ? 0 : 1) +
                   (event.kind == TokenEventKind::kOpen ? NumOptional(event) : 0));
  writer->Field("kind", NameAt(kTokenKinds, static_cast<size_t>(event.kind)));
  writer->Field("stream", event.stream);
  writer->Field("offset", event.offset);
  writer->Field("t_ns", event.time_ns);
  switch (event.kind) {
    case TokenEventKind::kOpen:
      writer->Field("rid", event.request_id);
      writer->Field("stop_strings", event.stop_strings);
      writer->Field("skip_special", event.skip_special_tokens);
      writer->Field("include_stop", event.include_stop);
      writer->Field("min_tokens", event.min_tokens);
      if (!event.profile.empty()) writer->Field("profile", event.profile);
      if (event.forked_from != 0) writer->Field("forked_from", event.forked_from);
      if (!event.prompt_tail.empty()) writer->Field("prompt_tail", event.prompt_tail);
      if (!event.output_tail.empty()) writer->Field("output_tail", event.output_tail);
      break;
    case TokenEventKind::kTokens:
      writer->Field("ids", event.ids);
      writer->Field("accepted", event.accepted);
      WriteIdOrNil(writer, "stop_token", event.stop_token);
      if (has_logprobs) writer->Field("logprobs", event.logprobs);
      WriteScores(event.scores, event.ids.size(), writer);
      return;
    case TokenEventKind::kEnd:
      writer->Field("finish", NameAt(kFinishReasons, event.finish_reason));
      WriteIdOrNil(writer, "stop_token", event.stop_token);
      break;
  }
  if (has_logprobs) writer->Field(kCumulativeLogprob, event.cumulative_logprob);
}

void ReadTokenEvent(MapReader* reader, TokenEvent* event) {
  event->kind = ReadKind<TokenEventKind>(reader, kTokenKinds);
  reader->Read("stream", &event->stream);
  reader->Read("offset", &event->offset);
  reader->Read("t_ns", &event->time_ns);
  switch (event->kind) {
    case TokenEventKind::kOpen:
      reader->Read("rid", &event->request_id, kRequestIdBytesMax);
      reader->Read("stop_strings", &event->stop_strings, kStopStringsMax);
      reader->Read("skip_special", &event->skip_special_tokens);
      reader->Read("include_stop", &event->include_stop);
      reader->Read("min_tokens", &event->min_tokens);
      if (reader->Has("profile")) reader->Read("profile", &event->profile, kProfileBytesMax);
      if (reader->Has("forked_from")) reader->Read("forked_from", &event->forked_from);
      if (reader->Has("prompt_tail")) {
        reader->Read("prompt_tail", &event->prompt_tail, kPromptTailMax);
      }
      if (reader->Has("output_tail")) {
        reader->Read("output_tail", &event->output_tail, kOutputTailMax);
      }
      ReadLogprob(reader, &event->cumulative_logprob);
      return;
    case TokenEventKind::kTokens:
      reader->Read("ids", &event->ids, kIdsMax);
      reader->Read("accepted", &event->accepted);
      reader->ReadOrNil("stop_token", kNoToken, &event->stop_token);
      if (reader->Has("logprobs")) reader->Read("logprobs", &event->logprobs, kIdsMax);
      if (reader->ok() && !event->logprobs.empty() && event->logprobs.size() != event->ids.size()) {
        reader->Fail("logprobs", fmt::format("has {} values for {} ids", event->logprobs.size(),
                                             event->ids.size()));
      }
      ReadScores(reader, event->ids.size(), &event->scores);
      if (reader->ok() && event->accepted > event->ids.size()) {
        reader->Fail("accepted", fmt::format("= {} is more than the {} ids", event->accepted,
                                             event->ids.size()));
      }
      return;
    case TokenEventKind::kEnd:
      ReadName(reader, "finish", kFinishReasons, 1, &event->finish_reason);
      reader->ReadOrNil("stop_token", kNoToken, &event->stop_token);
      ReadLogprob(reader, &event->cumulative_logprob);
      return;
  }
}

void ReadTokenBatch(MapReader* reader, TokenBatch* batch) {
  reader->Read("epoch", &batch->epoch);
  reader->Read("seq", &batch->seq);
  for (const msgpack::object* element : reader->Array("events", kEventsMax)) {
    if (element->type != msgpack::type::MAP) return reader->Fail("events", "must hold maps");
    MapReader event_reader(*element, "token event");
    ReadTokenEvent(&event_reader, &batch->events.emplace_back());
    if (!event_reader.ok())
      return reader->Fail("events", std::string(event_reader.status().message()));
  }
}

// ---- text event ---------------------------------------------------------------------------------

void WriteStop(MapWriter* writer, const TextEvent& event) {
  if (!event.stop_string.empty()) {
    writer->Field("stop", event.stop_string);
  } else {
    WriteIdOrNil(writer, "stop", event.stop_token);
  }
}

void ReadStop(MapReader* reader, TextEvent* event) {
  const msgpack::object* stop = reader->Find("stop");
  if (stop == nullptr) return;
  if (stop->type == msgpack::type::STR) {
    reader->Read("stop", &event->stop_string, kStopStringBytesMax);
  } else {
    reader->ReadOrNil("stop", kNoToken, &event->stop_token);
  }
}

void ReadSpans(MapReader* reader, TextEvent* event) {
  uint64_t covered = 0;
  for (const msgpack::object* element : reader->Array("spans", kEventBytesMax)) {
    const msgpack::object_array& pair = element->via.array;
    const bool is_pair = element->type == msgpack::type::ARRAY && pair.size == 2 &&
                         pair.ptr[0].type == msgpack::type::POSITIVE_INTEGER &&
                         pair.ptr[0].via.u64 <= kEventBytesMax &&
                         pair.ptr[1].type == msgpack::type::POSITIVE_INTEGER &&
                         pair.ptr[1].via.u64 <= 1;
    if (!is_pair) return reader->Fail("spans", "must hold pairs of a size and 0 or 1");
    covered += pair.ptr[0].via.u64;
    event->spans.push_back({static_cast<uint32_t>(pair.ptr[0].via.u64), pair.ptr[1].via.u64 == 1});
  }
  if (reader->ok() && covered != event->text.size()) {
    reader->Fail("spans",
                 fmt::format("cover {} bytes, the text has {}", covered, event->text.size()));
  }
}

void ReadTextEvent(MapReader* reader, TextEvent* event) {
  event->kind = ReadKind<TextEventKind>(reader, kTextKinds);
  reader->Read("epoch", &event->epoch);
  reader->Read("seq", &event->seq);
  reader->Read("stream", &event->stream);
  reader->Read("rid", &event->request_id, kRequestIdBytesMax);
  if (event->kind == TextEventKind::kOpen) return;
  reader->Read("token_offset", &event->token_offset);
  reader->Read("tokens", &event->tokens);
  reader->Read("byte_offset", &event->byte_offset);
  reader->Read("text", &event->text, kEventBytesMax);
  ReadSpans(reader, event);
  ReadScores(reader, event->tokens - event->token_offset, &event->scores);
  if (event->kind != TextEventKind::kEnd) return;
  ReadName(reader, "finish", kFinishReasons, 1, &event->finish_reason);
  ReadStop(reader, event);
  reader->Read("rounds", &event->rounds);
  reader->Read("accepted", &event->accepted);
  reader->Read("late", &event->late);
  ReadLogprob(reader, &event->cumulative_logprob);
}

}  // namespace

std::string TextTopic(std::string_view request_id) {
  return fmt::format("{}{}/", kTextTopics, request_id);
}

bool IsTopicPrefix(std::string_view prefix) {
  if (kTokensTopic.starts_with(prefix) || kHeartbeatTopic.starts_with(prefix) ||
      kTextTopics.starts_with(prefix)) {
    return true;
  }
  if (!prefix.starts_with(kTextTopics)) return false;
  const size_t rest_bytes = prefix.size() - kTextTopics.size();
  return rest_bytes <= kRequestIdBytesMax ||
         (rest_bytes == kRequestIdBytesMax + 1 && prefix.ends_with('/'));
}

void AppendTokenBatch(const TokenBatch& batch, std::string* out) {
  MapWriter writer(out);
  writer.BeginMap(4);
  writer.Field("v", kEventVersion);
  writer.Field("epoch", batch.epoch);
  writer.Field("seq", batch.seq);
  writer.BeginArray("events", batch.events.size());
  for (const TokenEvent& event : batch.events) WriteTokenEvent(&writer, event);
}

absl::StatusOr<TokenBatch> DecodeTokenBatch(std::string_view payload) {
  return DecodePayload<TokenBatch>(payload, "token batch", ReadTokenBatch);
}

void AppendTextEvent(const TextEvent& event, std::string* out) {
  MapWriter writer(out);
  const std::array<size_t, 3> num_fields = {6, 11, 16};
  const bool has_logprob =
      event.kind == TextEventKind::kEnd && !std::isnan(event.cumulative_logprob);
  writer.BeginMap(num_fields.at(static_cast<size_t>(event.kind)) + (has_logprob ? 1 : 0) +
                  (event.scores.empty() ? 0 : 1));
  writer.Field("v", kEventVersion);
  writer.Field("kind", NameAt(kTextKinds, static_cast<size_t>(event.kind)));
  writer.Field("epoch", event.epoch);
  writer.Field("seq", event.seq);
  writer.Field("stream", event.stream);
  writer.Field("rid", event.request_id);
  if (event.kind == TextEventKind::kOpen) return;
  writer.Field("token_offset", event.token_offset);
  writer.Field("tokens", event.tokens);
  writer.Field("byte_offset", event.byte_offset);
  writer.Field("text", event.text);
  writer.BeginArray("spans", event.spans.size());
  for (const WireSpan& span : event.spans) {
    writer.BeginArrayElement(2);
    writer.Element(span.size_bytes);
    writer.Element(span.accepted ? 1 : 0);
  }
  WriteScores(event.scores, event.tokens - event.token_offset, &writer);
  if (event.kind != TextEventKind::kEnd) return;
  writer.Field("finish", NameAt(kFinishReasons, event.finish_reason));
  WriteStop(&writer, event);
  writer.Field("rounds", event.rounds);
  writer.Field("accepted", event.accepted);
  writer.Field("late", event.late);
  if (has_logprob) writer.Field(kCumulativeLogprob, event.cumulative_logprob);
}

absl::StatusOr<TextEvent> DecodeTextEvent(std::string_view payload) {
  return DecodePayload<TextEvent>(payload, "text event", ReadTextEvent);
}

void AppendHeartbeat(const Heartbeat& heartbeat, std::string* out) {
  MapWriter writer(out);
  writer.BeginMap(4);
  writer.Field("v", kEventVersion);
  writer.Field("epoch", heartbeat.epoch);
  writer.Field("seq", heartbeat.seq);
  writer.Field("streams", heartbeat.streams);
}

absl::StatusOr<Heartbeat> DecodeHeartbeat(std::string_view payload) {
  return DecodePayload<Heartbeat>(payload, "heartbeat", [](MapReader* reader, Heartbeat* out) {
    reader->Read("epoch", &out->epoch);
    reader->Read("seq", &out->seq);
    reader->Read("streams", &out->streams);
  });
}

void AppendSignOfLife(const SignOfLife& alive, std::string* out) {
  MapWriter writer(out);
  writer.BeginMap(3);
  writer.Field("v", kEventVersion);
  writer.Field("epoch", alive.epoch);
  writer.Field("instance", alive.instance);
}

absl::StatusOr<SignOfLife> DecodeSignOfLife(std::string_view payload) {
  return DecodePayload<SignOfLife>(payload, "alive", [](MapReader* reader, SignOfLife* out) {
    reader->Read("epoch", &out->epoch);
    reader->Read("instance", &out->instance);
  });
}

void AppendAbortRequest(const AbortRequest& request, std::string* out) {
  MapWriter writer(out);
  writer.BeginMap(5);
  writer.Field("v", kEventVersion);
  writer.Field("epoch", request.epoch);
  writer.Field("stream", request.stream);
  writer.Field("kept_tokens", request.kept_tokens);
  writer.Field("finish", NameAt(kFinishReasons, request.finish_reason));
}

absl::StatusOr<AbortRequest> DecodeAbortRequest(std::string_view payload) {
  return DecodePayload<AbortRequest>(
      payload, "abort request", [](MapReader* reader, AbortRequest* out) {
        reader->Read("epoch", &out->epoch);
        reader->Read("stream", &out->stream);
        reader->Read("kept_tokens", &out->kept_tokens);
        ReadName(reader, "finish", kFinishReasons, 0, &out->finish_reason);
        if (reader->ok() && out->finish_reason != SPECD_FINISH_NONE &&
            out->finish_reason != SPECD_FINISH_STOP && out->finish_reason != SPECD_FINISH_ABORT) {
          reader->Fail("finish", "must be \"none\", \"stop\" or \"abort\"");
        }
      });
}

}  // namespace specd
