#include "tests/simulator/sim_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ipc/base/fnv.h"
#include "ipc/events/text_event.h"
#include "ipc/events/token_event.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd::sim {
namespace {

constexpr absl::Duration kPatience = absl::Milliseconds(500);

ZmqSocket Subscribe(SimReader::Kind kind, ZmqContext* context) {
  const bool is_ids = kind == SimReader::Kind::kIds;
  auto socket = ZmqSocket::Make(context, ZmqKind::kSubscribe, {});
  SPECD_CHECK(socket.ok());
  SPECD_CHECK(socket->Subscribe(is_ids ? kTokensTopic : "text/").ok());
  SPECD_CHECK(socket->Subscribe(kHeartbeatTopic).ok());
  SPECD_CHECK(socket->Connect(is_ids ? "inproc://tokens" : "inproc://text").ok());
  return *std::move(socket);
}

}  // namespace

SimReader::SimReader(Kind kind, ZmqContext* context)
    : kind_(kind),
      events_(Subscribe(kind, context)),
      asks_(context, kind == Kind::kIds ? "inproc://ask" : "inproc://text_ask") {}

absl::StatusOr<bool> SimReader::Step() {
  const absl::StatusOr<bool> received = events_.Receive(&frames_, absl::ZeroDuration());
  if (!received.ok()) return received.status();
  if (*received) {
    if (absl::Status status = Hear(frames_[0], frames_[1]); !status.ok()) return status;
  }
  if (!must_ask_ || last_.epoch == 0) return *received;
  const absl::StatusOr<bool> answered = AskAll();
  if (!answered.ok()) return answered.status();
  must_ask_ = !*answered;
  return *received || *answered;
}

absl::Status SimReader::Hear(std::string_view topic, std::string_view payload) {
  if (topic == kHeartbeatTopic) {
    const absl::StatusOr<Heartbeat> beat = DecodeHeartbeat(payload);
    if (!beat.ok()) return beat.status();
    Follow({beat->epoch, beat->seq, beat->instance}, false);
    return absl::OkStatus();
  }
  if (kind_ == Kind::kIds) {
    const absl::StatusOr<TokenBatch> batch = DecodeTokenBatch(payload);
    if (!batch.ok()) return batch.status();
    Follow({batch->epoch, batch->seq, last_.instance}, true);
    for (const TokenEvent& event : batch->events) {
      if (absl::Status status = Take(event, false); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  const absl::StatusOr<TextEvent> event = DecodeTextEvent(payload);
  if (!event.ok()) return event.status();
  Follow({event->epoch, event->seq, last_.instance}, true);
  return Take(*event, false);
}

void SimReader::Follow(const Position& heard, bool is_message) {
  if (heard.epoch == 0) return;  // a text side that has not heard its daemon
  if (heard.epoch != last_.epoch) {
    names_.clear();
    must_ask_ = true;
  } else if (heard.seq != last_.seq + (is_message ? 1 : 0) || heard.instance != last_.instance) {
    must_ask_ = true;
  }
  last_ = heard;
}

absl::StatusOr<bool> SimReader::AskAll() {
  for (const AskKind kind : {AskKind::kEnded, AskKind::kStreams}) {
    const absl::StatusOr<bool> answered = AskPages({.kind = kind});
    if (!answered.ok() || !*answered) return answered;
  }
  return true;
}

absl::StatusOr<bool> SimReader::AskPages(Ask ask) {
  const auto take = [this](const auto& answer, std::optional<AskPosition>* next) {
    *next = answer->next;
    for (const auto& event : answer->events) {
      if (absl::Status status = Take(event, true); !status.ok()) return status;
    }
    return absl::OkStatus();
  };
  for (;;) {
    std::string payload;
    AppendAsk(ask, &payload);
    const absl::StatusOr<std::string> reply = asks_.Ask(payload, kPatience);
    if (!reply.ok()) return false;
    std::optional<AskPosition> next;
    absl::Status taken;
    if (kind_ == Kind::kIds) {
      const absl::StatusOr<TokenAnswer> answer = DecodeTokenAnswer(*reply);
      if (!answer.ok() || answer->epoch != last_.epoch) return false;
      taken = take(answer, &next);
    } else {
      const absl::StatusOr<TextAnswer> answer = DecodeTextAnswer(*reply);
      if (!answer.ok() || answer->epoch != last_.epoch) return false;
      taken = take(answer, &next);
    }
    if (!taken.ok()) return taken;
    if (!next.has_value()) return true;
    ask.stream = next->stream;
    ask.offset = next->offset;
  }
}

absl::StatusOr<ReadStream*> SimReader::Find(uint64_t stream, uint64_t offset, uint64_t has,
                                            bool is_answer) {
  const auto name = names_.find(stream);
  // The next daemon may run the round behind an end again, before it ends there too.
  if (name != names_.end() && offset > has && by_name_[name->second].has_ended) return nullptr;
  if (name == names_.end() || offset > has) {
    if (is_answer) {
      return absl::DataLossError(
          fmt::format("stream {} is answered from {} on, and {} have come", stream, offset, has));
    }
    must_ask_ = true;
    return nullptr;
  }
  ReadStream& found = by_name_[name->second];
  return &found;
}

absl::Status SimReader::Take(const TokenEvent& event, bool is_answer) {
  if (const StreamOpening* const opening = event.opening(); opening != nullptr) {
    Open(event.stream, opening->request_id);
    const auto [stream, is_new] = by_name_.try_emplace(opening->request_id);
    if (is_new) stream->second.begin = event.offset;
    if (stream->second.begin == event.offset) return absl::OkStatus();
    return absl::DataLossError(fmt::format("\"{}\" began at {}, and now at {}", opening->request_id,
                                           stream->second.begin, event.offset));
  }
  const auto name = names_.find(event.stream);
  const ReadStream* const known = name == names_.end() ? nullptr : &by_name_[name->second];
  const size_t has = known == nullptr ? 0 : known->begin + known->ids.size();
  const absl::StatusOr<ReadStream*> found = Find(event.stream, event.offset, has, is_answer);
  if (!found.ok()) return found.status();
  if (*found == nullptr) return absl::OkStatus();
  ReadStream& stream = **found;
  for (size_t i = 0; i < event.num_ids(); ++i) {
    const TokenId id = event.tokens()->ids[i];
    const size_t at = event.offset - stream.begin + i;
    if (at == stream.ids.size() && !stream.has_ended) {
      stream.ids.push_back(id);
    } else if (at < stream.ids.size() && stream.ids[at] != id) {
      return absl::DataLossError(
          fmt::format("\"{}\": id {} was {} and is {}", name->second, at, stream.ids[at], id));
    }
  }
  const StreamEnd* const end = event.end();
  if (end == nullptr) return absl::OkStatus();
  // A stop string that the text side finds in the last round may move an end. Readers of ids have
  // heard the first one, and the next daemon tells the other.
  if (stream.has_ended) return absl::OkStatus();
  stream.ids.resize(event.offset - stream.begin);
  stream.has_ended = true;
  stream.finish_reason = end->finish_reason;
  Fnv1a checksum;
  for (const int32_t id : stream.ids) checksum.Add(id);
  if (end->checksum == 0 || end->checksum == checksum.value()) return absl::OkStatus();
  return absl::DataLossError(fmt::format("\"{}\": the checksum of its ids", name->second));
}

absl::Status SimReader::Take(const TextEvent& event, bool is_answer) {
  if (event.kind == TextEventKind::kOpen) {
    Open(event.stream, event.request_id);
    return absl::OkStatus();
  }
  const auto name = names_.find(event.stream);
  const size_t has = name == names_.end() ? 0 : by_name_[name->second].text.size();
  const absl::StatusOr<ReadStream*> found = Find(event.stream, event.byte_offset, has, is_answer);
  if (!found.ok()) return found.status();
  if (*found == nullptr) return absl::OkStatus();
  ReadStream& stream = **found;
  const size_t known = std::min<size_t>(has - event.byte_offset, event.text.size());
  if (stream.text.compare(event.byte_offset, known, event.text, 0, known) != 0) {
    return absl::DataLossError(fmt::format("\"{}\": text at {} was \"{}\" and is \"{}\"",
                                           name->second, event.byte_offset,
                                           stream.text.substr(event.byte_offset), event.text));
  }
  if (stream.has_ended) {
    stream.has_another_end = stream.has_another_end || known < event.text.size();
  } else {
    stream.text += event.text.substr(known);
  }
  if (event.kind != TextEventKind::kEnd) return absl::OkStatus();
  if (stream.has_ended) {
    stream.has_another_end = stream.has_another_end || stream.finish_reason != event.finish_reason;
    return absl::OkStatus();
  }
  stream.has_ended = true;
  stream.finish_reason = event.finish_reason;
  Fnv1a checksum;
  checksum.Add(std::string_view(stream.text));
  const bool is_shorter = event.byte_offset + event.text.size() < stream.text.size();
  // An abort may take a round back that no engine knows, and given text stays given.
  if (is_shorter && event.finish_reason == SPECD_FINISH_ABORT) return absl::OkStatus();
  if (event.checksum == checksum.value()) return absl::OkStatus();
  return absl::DataLossError(fmt::format("\"{}\": the checksum of its text", name->second));
}

}  // namespace specd::sim
