#include "ipc/events/ask.h"

#include <fmt/format.h>

#include <array>

#include "ipc/base/valid_text.h"
#include "ipc/events/event_fields.h"

namespace specd {
namespace {

constexpr std::array<std::string_view, 4> kAskKinds = {"streams", "ended", "from", "abort"};
constexpr size_t kReasonBytesMax = 2048;

template <class Event>
void Append(const Answer<Event>& answer, void (*write)(MapWriter*, const Event&),
            std::string* out) {
  MapWriter writer(out);
  writer.BeginMap(answer.next.has_value() ? 6 : 5);
  writer.Field("v", kEventVersion);
  writer.Field("epoch", answer.epoch);
  writer.Field("seq", answer.seq);
  writer.Field("newest", answer.newest);
  writer.BeginArray("events", answer.events.size());
  for (const Event& event : answer.events) write(&writer, event);
  if (!answer.next.has_value()) return;
  writer.Field("next", std::array<uint64_t, 2>{answer.next->stream, answer.next->offset});
}

template <class Event>
absl::StatusOr<Answer<Event>> Decode(std::string_view payload, void (*read)(MapReader*, Event*)) {
  std::string refused;
  bool may_ask_again = false;
  absl::StatusOr<Answer<Event>> answer =
      DecodePayload<Answer<Event>>(payload, "answer", [&](MapReader* reader, Answer<Event>* out) {
        if (reader->Has("error")) {
          reader->Read("again", &may_ask_again);
          return reader->Read("error", &refused, kReasonBytesMax);
        }
        reader->Read("epoch", &out->epoch);
        reader->Read("seq", &out->seq);
        reader->Read("newest", &out->newest);
        ReadEvents(reader, read, &out->events);
        if (!reader->ok() || !reader->Has("next")) return;
        std::vector<uint64_t> next;
        reader->Read("next", &next, 2);
        if (reader->ok() && next.size() != 2)
          reader->Fail("next", "must be a stream and an offset");
        if (reader->ok()) out->next = {.stream = next[0], .offset = next[1]};
      });
  if (!answer.ok() || refused.empty()) return answer;
  if (may_ask_again) return absl::UnavailableError(refused);
  return absl::NotFoundError(refused);
}

}  // namespace

void AppendAsk(const Ask& ask, std::string* out) {
  MapWriter writer(out);
  const bool is_abort = ask.kind == AskKind::kAbort;
  const bool has_name = is_abort || !ask.request_id.empty();
  writer.BeginMap(2 + (is_abort ? 0u : 2u) + (has_name ? 1u : 0u) + (ask.by_tokens ? 1u : 0u));
  writer.Field("v", kEventVersion);
  writer.Field("ask", NameAt(kAskKinds, static_cast<size_t>(ask.kind)));
  if (!is_abort) {
    writer.Field("stream", ask.stream);
    writer.Field("offset", ask.offset);
  }
  if (has_name) writer.Field("rid", ask.request_id);
  if (ask.by_tokens) writer.Field("by_tokens", true);
}

absl::StatusOr<Ask> DecodeAsk(std::string_view payload) {
  return DecodePayload<Ask>(payload, "ask", [](MapReader* reader, Ask* out) {
    uint32_t kind = 0;
    ReadName(reader, "ask", kAskKinds, 0, &kind);
    out->kind = static_cast<AskKind>(kind);
    if (out->kind != AskKind::kAbort) {
      reader->Read("stream", &out->stream);
      reader->Read("offset", &out->offset);
    }
    if (out->kind == AskKind::kAbort || reader->Has("rid")) {
      reader->Read("rid", &out->request_id, kRequestIdBytesMax);
    }
    if (reader->Has("by_tokens")) reader->Read("by_tokens", &out->by_tokens);
  });
}

void AppendAnswer(const TokenAnswer& answer, std::string* out) {
  Append(answer, &WriteTokenEvent, out);
}
void AppendAnswer(const TextAnswer& answer, std::string* out) {
  Append(answer, &WriteTextEvent, out);
}

void AppendRefusal(const absl::Status& why, std::string* out) {
  MapWriter writer(out);
  writer.BeginMap(3);
  writer.Field("v", kEventVersion);
  writer.Field("again", absl::IsUnavailable(why));
  writer.Field("error", ValidText({why.message().data(), why.message().size()}, kReasonBytesMax));
}

absl::StatusOr<TokenAnswer> DecodeTokenAnswer(std::string_view payload) {
  return Decode(payload, &ReadTokenEvent);
}
absl::StatusOr<TextAnswer> DecodeTextAnswer(std::string_view payload) {
  return Decode(payload, &ReadTextEvent);
}

}  // namespace specd
