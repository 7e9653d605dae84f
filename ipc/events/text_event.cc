#include "ipc/events/text_event.h"

#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "ipc/events/event_fields.h"
#include "ipc/events/wire_scores.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr std::string_view kTextTopics = "text/";
constexpr size_t kStopStringBytesMax = 32 * 1024;
// The kind of a span is a sum of these.
constexpr uint64_t kAccepted = 1;
constexpr uint64_t kReasoning = 2;
constexpr std::string_view kScoreBytes = "score_bytes";
constexpr std::array<std::string_view, 3> kTextKinds = {"open", "text", "end"};

bool HasReasoning(const TextEvent& event) {
  return event.kind == TextEventKind::kEnd && event.reasoning_tokens > 0;
}

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
                         pair.ptr[1].via.u64 <= (kAccepted | kReasoning);
    if (!is_pair) return reader->Fail("spans", "must hold pairs of a size and 0 .. 3");
    covered += pair.ptr[0].via.u64;
    event->spans.push_back({static_cast<uint32_t>(pair.ptr[0].via.u64),
                            (pair.ptr[1].via.u64 & kAccepted) != 0,
                            (pair.ptr[1].via.u64 & kReasoning) != 0});
  }
  if (reader->ok() && covered != event->text.size()) {
    reader->Fail("spans",
                 fmt::format("cover {} bytes, the text has {}", covered, event->text.size()));
  }
}

// Like the scores: an array for each token, with a byte string for each score.
void WriteScoreBytes(const TextEvent& event, MapWriter* writer) {
  if (event.score_bytes.empty()) return;
  const uint64_t num_tokens = event.tokens - event.token_offset;
  SPECD_CHECK(event.score_bytes.size() == event.scores.size());
  const size_t per_token = event.scores.size() / num_tokens;
  writer->BeginArray(kScoreBytes, num_tokens);
  for (size_t i = 0; i < event.score_bytes.size(); ++i) {
    if (i % per_token == 0) writer->BeginArrayElement(per_token);
    const std::string& bytes = event.score_bytes[i];
    writer->Element(msgpack::type::raw_ref(bytes.data(), static_cast<uint32_t>(bytes.size())));
  }
}

void ReadScoreBytes(MapReader* reader, TextEvent* event) {
  if (!reader->ok() || !reader->Has(kScoreBytes)) return;
  std::vector<std::string> found;
  for (const msgpack::object* token : reader->Array(kScoreBytes, kEventBytesMax)) {
    if (token->type != msgpack::type::ARRAY) break;
    for (const msgpack::object& each : std::span(token->via.array.ptr, token->via.array.size)) {
      if (each.type != msgpack::type::BIN) break;
      found.emplace_back(each.via.bin.ptr, each.via.bin.size);
    }
  }
  if (!reader->ok()) return;
  if (found.size() != event->scores.size()) {
    return reader->Fail(kScoreBytes, "must hold a byte string for each of the scores");
  }
  event->score_bytes = std::move(found);
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
                   (event.scores.empty() ? 0 : 1) + (event.score_bytes.empty() ? 0 : 1) +
                   (event.resumed ? 1 : 0) + (HasReasoning(event) ? 1 : 0));
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
    writer->Element((span.accepted ? kAccepted : 0) | (span.reasoning ? kReasoning : 0));
  }
  WriteScores(event.scores, event.tokens - event.token_offset, writer);
  WriteScoreBytes(event, writer);
  if (event.kind != TextEventKind::kEnd) return;
  writer->Field("finish", NameAt(kFinishReasons, event.finish_reason));
  WriteStop(writer, event);
  writer->Field("rounds", event.rounds);
  writer->Field("accepted", event.accepted);
  if (HasReasoning(event)) writer->Field("reasoning_tokens", event.reasoning_tokens);
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
  ReadScoreBytes(reader, event);
  if (event->kind != TextEventKind::kEnd) return;
  ReadName(reader, "finish", kFinishReasons, 1, &event->finish_reason);
  ReadStop(reader, event);
  reader->Read("rounds", &event->rounds);
  reader->Read("accepted", &event->accepted);
  if (reader->Has("reasoning_tokens")) reader->Read("reasoning_tokens", &event->reasoning_tokens);
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
