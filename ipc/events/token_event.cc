#include "ipc/events/token_event.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ipc/base/limits.h"
#include "ipc/events/event_fields.h"
#include "ipc/events/wire_scores.h"

namespace specd {
namespace {

constexpr size_t kProfileBytesMax = 64;
constexpr size_t kStopStringsMax = 1024;
constexpr size_t kStopRegexMax = 64;
constexpr size_t kReasoningEndBytesMax = 64;
constexpr size_t kIdsMax = SessionLimits::kDraftMax + 1;
constexpr std::array<std::string_view, 3> kTokenKinds = {"open", "tokens", "end"};

// The keys of an opening that are left out where they say nothing.
size_t NumOptional(const TokenEvent& opening) {
  return (opening.profile.empty() ? 0u : 1u) + (opening.stop_regex.empty() ? 0u : 1u) +
         (opening.forked_from == 0 ? 0u : 1u) + (opening.prompt_tail.empty() ? 0u : 1u) +
         (opening.output_tail.empty() ? 0u : 1u) + (opening.earlier.empty() ? 0u : 1u) +
         (opening.resumed ? 1u : 0u) + (opening.reasoning_end.empty() ? 0u : 1u) +
         (opening.reasoning_progress == 0 ? 0u : 1u) + (opening.reasoning_tokens == 0 ? 0u : 1u);
}

void WriteReasoning(const TokenEvent& event, MapWriter* writer) {
  if (!event.reasoning_end.empty()) writer->Field("reasoning_end", event.reasoning_end);
  if (event.reasoning_progress != 0) writer->Field("reasoning_progress", event.reasoning_progress);
  if (event.reasoning_tokens != 0) writer->Field("reasoning_tokens", event.reasoning_tokens);
}

void ReadReasoning(MapReader* reader, TokenEvent* event) {
  if (reader->Has("reasoning_end")) {
    reader->Read("reasoning_end", &event->reasoning_end, kReasoningEndBytesMax);
  }
  if (reader->Has("reasoning_progress")) {
    reader->Read("reasoning_progress", &event->reasoning_progress);
  }
  if (reader->Has("reasoning_tokens")) reader->Read("reasoning_tokens", &event->reasoning_tokens);
  if (reader->ok() &&
      event->reasoning_progress >= std::max<size_t>(event->reasoning_end.size(), 1)) {
    reader->Fail("reasoning_progress",
                 fmt::format("= {} is not within the {} bytes of reasoning_end",
                             event->reasoning_progress, event->reasoning_end.size()));
  }
}

}  // namespace

void WriteTokenEvent(MapWriter* writer, const TokenEvent& event) {
  const std::array<size_t, 3> num_fields = {9, 7, 6};
  const bool has_logprobs = event.kind == TokenEventKind::kTokens
                                ? !event.logprobs.empty()
                                : !std::isnan(event.cumulative_logprob);
  writer->BeginMap(num_fields.at(static_cast<size_t>(event.kind)) + (has_logprobs ? 1 : 0) +
                   (event.scores.empty() ? 0 : 1) +
                   (event.kind == TokenEventKind::kOpen ? NumOptional(event) : 0) +
                   (event.checksum == 0 ? 0 : 1));
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
      if (!event.stop_regex.empty()) writer->Field("stop_regex", event.stop_regex);
      if (!event.profile.empty()) writer->Field("profile", event.profile);
      if (event.forked_from != 0) writer->Field("forked_from", event.forked_from);
      if (event.resumed) writer->Field("resumed", event.resumed);
      if (!event.prompt_tail.empty()) writer->Field("prompt_tail", event.prompt_tail);
      if (!event.output_tail.empty()) writer->Field("output_tail", event.output_tail);
      if (!event.earlier.empty()) writer->Field("earlier", event.earlier);
      WriteReasoning(event, writer);
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
      if (event.checksum != 0) writer->Field("checksum", event.checksum);
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
      if (reader->Has("stop_regex")) reader->Read("stop_regex", &event->stop_regex, kStopRegexMax);
      if (reader->Has("profile")) reader->Read("profile", &event->profile, kProfileBytesMax);
      if (reader->Has("forked_from")) reader->Read("forked_from", &event->forked_from);
      if (reader->Has("resumed")) reader->Read("resumed", &event->resumed);
      if (reader->Has("prompt_tail")) {
        reader->Read("prompt_tail", &event->prompt_tail, kPromptTailMax);
      }
      if (reader->Has("output_tail")) {
        reader->Read("output_tail", &event->output_tail, kOutputTailMax);
      }
      if (reader->Has("earlier")) reader->Read("earlier", &event->earlier, kOutputTailMax);
      ReadReasoning(reader, event);
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
      if (reader->Has("checksum")) reader->Read("checksum", &event->checksum);
      ReadLogprob(reader, &event->cumulative_logprob);
      return;
  }
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
  return DecodePayload<TokenBatch>(payload, "token batch", [](MapReader* reader, TokenBatch* out) {
    reader->Read("epoch", &out->epoch);
    reader->Read("seq", &out->seq);
    ReadEvents(reader, &ReadTokenEvent, &out->events);
  });
}

void AppendHeartbeat(const Heartbeat& heartbeat, std::string* out) {
  MapWriter writer(out);
  writer.BeginMap(heartbeat.instance == 0 ? 4 : 5);
  writer.Field("v", kEventVersion);
  writer.Field("epoch", heartbeat.epoch);
  writer.Field("seq", heartbeat.seq);
  writer.Field("streams", heartbeat.streams);
  if (heartbeat.instance != 0) writer.Field("instance", heartbeat.instance);
}

absl::StatusOr<Heartbeat> DecodeHeartbeat(std::string_view payload) {
  return DecodePayload<Heartbeat>(payload, "heartbeat", [](MapReader* reader, Heartbeat* out) {
    reader->Read("epoch", &out->epoch);
    reader->Read("seq", &out->seq);
    reader->Read("streams", &out->streams);
    if (reader->Has("instance")) reader->Read("instance", &out->instance);
  });
}

void AppendSignOfLife(const SignOfLife& alive, std::string* out) {
  const bool is_shard = alive.shard.count > 1;
  MapWriter writer(out);
  writer.BeginMap(is_shard ? 5 : 3);
  writer.Field("v", kEventVersion);
  writer.Field("epoch", alive.epoch);
  writer.Field("instance", alive.instance);
  if (!is_shard) return;
  writer.Field("shard", alive.shard.index);
  writer.Field("shards", alive.shard.count);
}

absl::StatusOr<SignOfLife> DecodeSignOfLife(std::string_view payload) {
  return DecodePayload<SignOfLife>(payload, "alive", [](MapReader* reader, SignOfLife* out) {
    reader->Read("epoch", &out->epoch);
    reader->Read("instance", &out->instance);
    if (!reader->Has("shards")) return;
    reader->Read("shard", &out->shard.index);
    reader->Read("shards", &out->shard.count);
    if (!reader->ok()) return;
    if (out->shard.count < 1 || out->shard.count > kTextShardsMax) {
      reader->Fail("shards",
                   fmt::format("= {} is outside 1 .. {}", out->shard.count, kTextShardsMax));
    } else if (out->shard.index >= out->shard.count) {
      reader->Fail("shard",
                   fmt::format("= {} is outside 0 .. {}", out->shard.index, out->shard.count - 1));
    }
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
