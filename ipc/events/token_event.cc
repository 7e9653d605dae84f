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
size_t NumOptional(const StreamOpening& opening) {
  return (opening.profile.empty() ? 0u : 1u) + (opening.stop_regex.empty() ? 0u : 1u) +
         (opening.forked_from == 0 ? 0u : 1u) + (opening.prompt_tail.empty() ? 0u : 1u) +
         (opening.output_tail.empty() ? 0u : 1u) + (opening.earlier.empty() ? 0u : 1u) +
         (opening.resumed ? 1u : 0u) + (opening.reasoning_end.empty() ? 0u : 1u) +
         (opening.reasoning_progress == 0 ? 0u : 1u) + (opening.reasoning_tokens == 0 ? 0u : 1u) +
         (std::isnan(opening.cumulative_logprob) ? 0u : 1u);
}

void Begin(const TokenEvent& event, size_t num_own, MapWriter* writer) {
  writer->BeginMap(4 + num_own);
  writer->Field("kind", NameAt(kTokenKinds, static_cast<size_t>(event.kind())));
  writer->Field("stream", event.stream);
  writer->Field("offset", event.offset);
  writer->Field("t_ns", event.time_ns);
}

void WriteLogprob(double sum, MapWriter* writer) {
  if (!std::isnan(sum)) writer->Field(kCumulativeLogprob, sum);
}

void Write(const TokenEvent& event, const StreamOpening& opening, MapWriter* writer) {
  Begin(event, 5 + NumOptional(opening), writer);
  writer->Field("rid", opening.request_id);
  writer->Field("stop_strings", opening.stop_strings);
  writer->Field("skip_special", opening.skip_special_tokens);
  writer->Field("include_stop", opening.include_stop);
  writer->Field("min_tokens", opening.min_tokens);
  if (!opening.stop_regex.empty()) writer->Field("stop_regex", opening.stop_regex);
  if (!opening.profile.empty()) writer->Field("profile", opening.profile);
  if (opening.forked_from != 0) writer->Field("forked_from", opening.forked_from);
  if (opening.resumed) writer->Field("resumed", opening.resumed);
  if (!opening.prompt_tail.empty()) writer->Field("prompt_tail", opening.prompt_tail);
  if (!opening.output_tail.empty()) writer->Field("output_tail", opening.output_tail);
  if (!opening.earlier.empty()) writer->Field("earlier", opening.earlier);
  if (!opening.reasoning_end.empty()) writer->Field("reasoning_end", opening.reasoning_end);
  if (opening.reasoning_progress != 0) {
    writer->Field("reasoning_progress", opening.reasoning_progress);
  }
  if (opening.reasoning_tokens != 0) writer->Field("reasoning_tokens", opening.reasoning_tokens);
  WriteLogprob(opening.cumulative_logprob, writer);
}

void Write(const TokenEvent& event, const RoundTokens& tokens, MapWriter* writer) {
  Begin(event, 3u + (tokens.logprobs.empty() ? 0u : 1u) + (tokens.scores.empty() ? 0u : 1u),
        writer);
  writer->Field("ids", tokens.ids);
  writer->Field("accepted", tokens.accepted);
  WriteIdOrNil(writer, "stop_token", tokens.stop_token);
  if (!tokens.logprobs.empty()) writer->Field("logprobs", tokens.logprobs);
  WriteScores(tokens.scores, tokens.ids.size(), writer);
}

void Write(const TokenEvent& event, const StreamEnd& end, MapWriter* writer) {
  Begin(event, 2u + (end.checksum == 0 ? 0u : 1u) + (std::isnan(end.cumulative_logprob) ? 0u : 1u),
        writer);
  writer->Field("finish", NameAt(kFinishReasons, end.finish_reason));
  WriteIdOrNil(writer, "stop_token", end.stop_token);
  if (end.checksum != 0) writer->Field("checksum", end.checksum);
  WriteLogprob(end.cumulative_logprob, writer);
}

void ReadReasoning(MapReader* reader, StreamOpening* opening) {
  if (reader->Has("reasoning_end")) {
    reader->Read("reasoning_end", &opening->reasoning_end, kReasoningEndBytesMax);
  }
  if (reader->Has("reasoning_progress")) {
    reader->Read("reasoning_progress", &opening->reasoning_progress);
  }
  if (reader->Has("reasoning_tokens")) {
    reader->Read("reasoning_tokens", &opening->reasoning_tokens);
  }
  if (reader->ok() &&
      opening->reasoning_progress >= std::max<size_t>(opening->reasoning_end.size(), 1)) {
    reader->Fail("reasoning_progress",
                 fmt::format("= {} is not within the {} bytes of reasoning_end",
                             opening->reasoning_progress, opening->reasoning_end.size()));
  }
}

void Read(MapReader* reader, StreamOpening* opening) {
  reader->Read("rid", &opening->request_id, kRequestIdBytesMax);
  reader->Read("stop_strings", &opening->stop_strings, kStopStringsMax);
  reader->Read("skip_special", &opening->skip_special_tokens);
  reader->Read("include_stop", &opening->include_stop);
  reader->Read("min_tokens", &opening->min_tokens);
  if (reader->Has("stop_regex")) reader->Read("stop_regex", &opening->stop_regex, kStopRegexMax);
  if (reader->Has("profile")) reader->Read("profile", &opening->profile, kProfileBytesMax);
  if (reader->Has("forked_from")) reader->Read("forked_from", &opening->forked_from);
  if (reader->Has("resumed")) reader->Read("resumed", &opening->resumed);
  if (reader->Has("prompt_tail")) {
    reader->Read("prompt_tail", &opening->prompt_tail, kPromptTailMax);
  }
  if (reader->Has("output_tail")) {
    reader->Read("output_tail", &opening->output_tail, kOutputTailMax);
  }
  if (reader->Has("earlier")) reader->Read("earlier", &opening->earlier, kOutputTailMax);
  ReadReasoning(reader, opening);
  ReadLogprob(reader, &opening->cumulative_logprob);
}

void Read(MapReader* reader, RoundTokens* tokens) {
  reader->Read("ids", &tokens->ids, kIdsMax);
  reader->Read("accepted", &tokens->accepted);
  reader->ReadOrNil("stop_token", kNoToken, &tokens->stop_token);
  if (reader->Has("logprobs")) reader->Read("logprobs", &tokens->logprobs, kIdsMax);
  if (reader->ok() && !tokens->logprobs.empty() && tokens->logprobs.size() != tokens->ids.size()) {
    reader->Fail("logprobs", fmt::format("has {} values for {} ids", tokens->logprobs.size(),
                                         tokens->ids.size()));
  }
  ReadScores(reader, tokens->ids.size(), &tokens->scores);
  if (reader->ok() && tokens->accepted > tokens->ids.size()) {
    reader->Fail("accepted",
                 fmt::format("= {} is more than the {} ids", tokens->accepted, tokens->ids.size()));
  }
}

void Read(MapReader* reader, StreamEnd* end) {
  ReadName(reader, "finish", kFinishReasons, 1, &end->finish_reason);
  reader->ReadOrNil("stop_token", kNoToken, &end->stop_token);
  if (reader->Has("checksum")) reader->Read("checksum", &end->checksum);
  ReadLogprob(reader, &end->cumulative_logprob);
}

}  // namespace

void WriteTokenEvent(MapWriter* writer, const TokenEvent& event) {
  std::visit([&](const auto& what) { Write(event, what, writer); }, event.what);
}

void ReadTokenEvent(MapReader* reader, TokenEvent* event) {
  const auto kind = ReadKind<TokenEventKind>(reader, kTokenKinds);
  reader->Read("stream", &event->stream);
  reader->Read("offset", &event->offset);
  reader->Read("t_ns", &event->time_ns);
  if (kind == TokenEventKind::kOpen) event->what = StreamOpening();
  if (kind == TokenEventKind::kEnd) event->what = StreamEnd();
  std::visit([reader](auto& what) { Read(reader, &what); }, event->what);
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
