#include "ipc/events/text_event.h"

#include <array>
#include <cmath>

#include "ipc/events/event_fields.h"
#include "ipc/events/wire_scores.h"

namespace specd {
namespace {

constexpr std::string_view kTextTopics = "text/";
constexpr size_t kStopStringBytesMax = 32 * 1024;
constexpr std::array<std::string_view, 3> kTextKinds = {"open", "text", "end"};

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

void WriteTextEvent(MapWriter* writer, const TextEvent& event) {
  const std::array<size_t, 3> num_fields = {6, 11, 17};
  const bool has_logprob =
      event.kind == TextEventKind::kEnd && !std::isnan(event.cumulative_logprob);
  writer->BeginMap(num_fields.at(static_cast<size_t>(event.kind)) + (has_logprob ? 1 : 0) +
                   (event.scores.empty() ? 0 : 1) + (event.resumed ? 1 : 0));
  writer->Field("v", kEventVersion);
  writer->Field("kind", NameAt(kTextKinds, static_cast<size_t>(event.kind)));
  writer->Field("epoch", event.epoch);
  writer->Field("seq", event.seq);
  writer->Field("stream", event.stream);
  writer->Field("rid", event.request_id);
  if (event.resumed) writer->Field("resumed", event.resumed);
  if (event.kind == TextEventKind::kOpen) return;
  writer->Field("token_offset", event.token_offset);
  writer->Field("tokens", event.tokens);
  writer->Field("byte_offset", event.byte_offset);
  writer->Field("text", event.text);
  writer->BeginArray("spans", event.spans.size());
  for (const WireSpan& span : event.spans) {
    writer->BeginArrayElement(2);
    writer->Element(span.size_bytes);
    writer->Element(span.accepted ? 1 : 0);
  }
  WriteScores(event.scores, event.tokens - event.token_offset, writer);
  if (event.kind != TextEventKind::kEnd) return;
  writer->Field("finish", NameAt(kFinishReasons, event.finish_reason));
  WriteStop(writer, event);
  writer->Field("rounds", event.rounds);
  writer->Field("accepted", event.accepted);
  writer->Field("late", event.late);
  writer->Field("checksum", event.checksum);
  if (has_logprob) writer->Field(kCumulativeLogprob, event.cumulative_logprob);
}

void ReadTextEvent(MapReader* reader, TextEvent* event) {
  event->kind = ReadKind<TextEventKind>(reader, kTextKinds);
  reader->Read("epoch", &event->epoch);
  reader->Read("seq", &event->seq);
  reader->Read("stream", &event->stream);
  reader->Read("rid", &event->request_id, kRequestIdBytesMax);
  if (event->kind == TextEventKind::kOpen) {
    if (reader->Has("resumed")) reader->Read("resumed", &event->resumed);
    return;
  }
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
  reader->Read("checksum", &event->checksum);
  ReadLogprob(reader, &event->cumulative_logprob);
}

void AppendTextEvent(const TextEvent& event, std::string* out) {
  MapWriter writer(out);
  WriteTextEvent(&writer, event);
}

absl::StatusOr<TextEvent> DecodeTextEvent(std::string_view payload) {
  return DecodePayload<TextEvent>(payload, "text event", &ReadTextEvent);
}

}  // namespace specd
