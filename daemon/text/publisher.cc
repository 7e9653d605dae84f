#include "daemon/text/publisher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "daemon/base/logging.h"
#include "ipc/events/wire_scores.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/sequence_round.h"

namespace specd {
namespace {

// The verify thread rings once it has nothing to do. While it is busy, and for events that other
// threads push, the publisher looks by itself (docs/decisions/045).
constexpr absl::Duration kLookBusy = absl::Milliseconds(1);
constexpr absl::Duration kLookIdle = absl::Milliseconds(20);
// After events it does not listen for so long. Rings then cost the verify thread nothing, and the
// events of quick rounds are sent together.
constexpr absl::Duration kRest = absl::Microseconds(50);

// One message carries at most this many events and about this many bytes; a decoder takes 4 MiB. In
// a longer message the first subscriber would also wait for the last event.
constexpr size_t kBatchEventsMax = 1024;
constexpr size_t kBatchBytesMax = size_t{1} << 20;

constexpr int64_t kHeartbeatNs = 200'000'000;

// Events of one session that are taken before the next session's turn.
constexpr int kPoppedMax = 4096;
constexpr size_t kResumedIds = 64;  // no more than a round may keep

// An abort may come after its stream's end was published, late by the time that the text side takes
// to read the end. This many later streams are a generous bound, and they bound the memory.
constexpr size_t kEndedStreamsMax = 65536;

// An upper bound of the bytes of an event on the wire.
size_t WireBytes(const TokenEvent& event) {
  size_t bytes = 160;
  if (const RoundTokens* const tokens = event.tokens(); tokens != nullptr) {
    bytes += 5 * tokens->ids.size() + 9 * tokens->logprobs.size();
    bytes += WireScoresBytes(tokens->ids.size(), tokens->scores.size());
  }
  if (const StreamOpening* const opening = event.opening(); opening != nullptr) {
    bytes += opening->request_id.size();
    bytes += 5 * (opening->prompt_tail.size() + opening->output_tail.size());
    for (const std::string& stop : opening->stop_strings) bytes += stop.size() + 5;
    for (const std::string& stop : opening->stop_regex) bytes += stop.size() + 5;
    if (!opening->reasoning_end.empty()) bytes += 96 + opening->reasoning_end.size();
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Publisher>> Publisher::Create(const Options& options) {
  absl::StatusOr<PublishSocket> tokens = PublishSocket::Make(options.context, options.subscribers);
  if (!tokens.ok()) return tokens.status();
  absl::StatusOr<PullSocket> aborts = PullSocket::Make(options.context, options.text_sides);
  if (!aborts.ok()) return aborts.status();
  absl::StatusOr<ReplySocket> asks = ReplySocket::Make(options.context, options.askers);
  if (!asks.ok()) return asks.status();
  for (const std::string& endpoint : options.tokens_endpoints) {
    if (absl::Status status = tokens->Bind(endpoint); !status.ok()) return status;
  }
  for (const std::string& endpoint : options.aborts_endpoints) {
    if (absl::Status status = aborts->Bind(endpoint); !status.ok()) return status;
  }
  for (const std::string& endpoint : options.ask_endpoints) {
    if (absl::Status status = asks->Bind(endpoint); !status.ok()) return status;
  }
  absl::StatusOr<std::unique_ptr<WaitSet>> waits = WaitSet::Make();
  if (!waits.ok()) return waits.status();
  return std::unique_ptr<Publisher>(new Publisher(
      options, {*std::move(tokens), *std::move(aborts), *std::move(asks)}, *std::move(waits)));
}

Publisher::Publisher(const Options& options, Sockets sockets, std::unique_ptr<WaitSet> waits)
    : options_(options),
      meters_(options.meters == nullptr ? own_meters_ : *options.meters),
      awake_(TextSides::kSilenceNs / 4),
      text_sides_(&awake_, options.text_grace_ns),
      waits_(std::move(waits)),
      tokens_(std::move(sockets.tokens)),
      aborts_(std::move(sockets.aborts)),
      asks_(std::move(sockets.asks)),
      kept_(options.keep) {
  batch_.epoch = options.epoch;
  aborts_.AddTo(waits_.get());
  asks_.AddTo(waits_.get());
}

void Publisher::Run() {
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint64_t sent_before = batch_.seq;
    if (!Step()) {
      Wait();
    } else if (batch_.seq != sent_before) {
      absl::SleepFor(kRest);
    }
  }
  // The verify thread has stopped, so no tokens come. What the text side still says is not heard:
  // the sessions have ended, and an engine that waits for the last word reads SHUTDOWN.
  while (Publish()) {
  }
}

void Publisher::Wait() {
  const auto has_events = [this] {
    return std::any_of(snapshot_.begin(), snapshot_.end(),
                       [](const auto& session) { return session->num_queued_events() > 0; });
  };
  waits_->Wait(snapshot_.empty() ? kLookIdle : kLookBusy, has_events);
}

bool Publisher::Publish() {
  options_.sessions->Refresh(&version_, &snapshot_);
  const uint64_t sent_before = batch_.seq;
  size_t num_queued = 0;
  for (const auto& session : snapshot_) num_queued += session->num_queued_events();
  meters_.queued_events.Set(num_queued);
  for (const auto& session : snapshot_) Drain(session);
  Retire();
  meters_.open_sequences.Set(targets_.size() - ended_streams_.size());
  if (!batch_.events.empty()) SendBatch();
  return batch_.seq != sent_before;
}

bool Publisher::Step() {
  awake_.Step(options_.clock->NowNs());
  ++meters_.beats;
  const bool published = Publish();
  SendHeartbeat();
  const bool received = Receive();
  if (options_.watch_text_side) {
    for (const TextShard& gone : text_sides_.TakeGone()) {
      AbortUnwatched("is gone, and no other one came", true, gone);
    }
  }
  const bool answered =
      asks_.Step([this](std::string_view ask, uint32_t uid) { return AnswerAsk(ask, uid); });
  return received || published || answered;
}

void Publisher::Drain(const std::shared_ptr<Session>& session) {
  // Bounded: a session may fill its queue as fast as it is emptied. The other sessions and the text
  // side's aborts must not wait for it.
  SequenceHandle sequence = 0;
  TokenEvent event;
  for (int popped = 0; popped < kPoppedMax && session->PopEvent(&sequence, &event); ++popped) {
    Remember(session, sequence, event);
    TokenEvent round = {.stream = event.stream, .offset = event.offset, .time_ns = event.time_ns};
    StreamOpening* const opening = event.opening();
    const std::vector<TokenId> resumed =
        opening == nullptr ? std::vector<TokenId>() : std::exchange(opening->resumed_ids, {});
    Add(std::move(event));
    // The tokens of a stream that goes on, as if they came in rounds now.
    for (size_t at = 0; at < resumed.size(); at += kResumedIds) {
      const auto begin = resumed.begin() + static_cast<ptrdiff_t>(at);
      round.tokens()->ids.assign(
          begin, begin + static_cast<ptrdiff_t>(std::min(kResumedIds, resumed.size() - at)));
      Add(round);
      round.offset += round.num_ids();
    }
  }
}

void Publisher::Add(TokenEvent event) {
  kept_.Take(&event, options_.clock->NowNs());
  batch_bytes_ += WireBytes(event);
  batch_.events.push_back(std::move(event));
  if (batch_.events.size() == kBatchEventsMax || batch_bytes_ > kBatchBytesMax) SendBatch();
}

void Publisher::Retire() {
  for (const auto& session : snapshot_) {
    if (!session->Drained()) continue;
    options_.sessions->Remove(session.get());
    retired_.push_back(session);
  }
  if (!retired_.empty()) options_.sessions->Refresh(&version_, &snapshot_);
  std::erase_if(retired_, [](const auto& session) { return session.use_count() == 1; });
}

void Publisher::Remember(const std::shared_ptr<Session>& session, SequenceHandle sequence,
                         const TokenEvent& event) {
  if (const StreamOpening* const opening = event.opening(); opening != nullptr) {
    const bool needs_text_side = opening->HasStops() && !opening->stops_inline;
    running_.Add(opening->request_id, event.stream);
    ++meters_.opened;
    targets_[event.stream] = {.session = session,
                              .sequence = sequence,
                              .request_id = opening->request_id,
                              .needs_text_side = needs_text_side};
    // The text side may have gone after the opening was checked and before it was done.
    if (needs_text_side && IsUnwatched(opening->request_id)) {
      session->AbortSequence(sequence).IgnoreError();
    }
  } else if (const StreamEnd* const end = event.end(); end != nullptr) {
    if (const auto found = targets_.find(event.stream); found != targets_.end()) {
      found->second.ended = true;
      running_.Erase(found->second.request_id, event.stream);
      ++meters_.ended[end->finish_reason % PerReason::size()];
      LogEnd(*session, found->second, event);
      if (IsUnwatched(found->second.request_id)) Settle(&found->second);
    }
    ended_streams_.push_back(event.stream);
    if (ended_streams_.size() > kEndedStreamsMax) {
      if (const auto oldest = targets_.find(ended_streams_.front()); oldest != targets_.end()) {
        Settle(&oldest->second);
        targets_.erase(oldest);
      }
      ended_streams_.pop_front();
    }
  }
}

void Publisher::LogEnd(const Session& session, const Target& target, const TokenEvent& event) {
  const uint64_t session_id = session.options().identity.session_id;
  const StreamEnd& end = *event.end();
  if (end.finish_reason == SPECD_FINISH_ABORT) {
    LogOfPeer({"verify", spdlog::level::info, "aborted", session_id},
              "session {}: \"{}\" (stream {}) was aborted after {} tokens", session_id,
              Printable(target.request_id), event.stream, event.offset);
  } else if (end.finish_reason == SPECD_FINISH_ERROR) {
    const std::string row = end.fault.row == kNoRow ? "" : fmt::format(", row {}", end.fault.row);
    LogOfPeer({"verify", spdlog::level::warn, "failed", session_id},
              "session {}: \"{}\" (stream {}) ended by an error after {} tokens, at draft place "
              "{}{}: {}",
              session_id, Printable(target.request_id), event.stream, event.offset, end.fault.place,
              row, RefusalText(end.fault.refusal));
  }
}

void Publisher::Settle(Target* target) {
  if (!target->needs_text_side || target->settled) return;
  const std::shared_ptr<Session> session = target->session.lock();
  target->settled = session == nullptr || session->SettleFromText(target->sequence);
}

void Publisher::SendBatch() {
  ++batch_.seq;
  buffer_.clear();
  AppendTokenBatch(batch_, &buffer_);
  batch_.events.clear();
  batch_bytes_ = 0;
  Send(kTokensTopic, "token events");
}

void Publisher::Send(std::string_view topic, const char* what) {
  meters_.bytes += topic.size() + buffer_.size();
  if (absl::Status sent = tokens_.Send(topic, buffer_); !sent.ok()) {
    LogOfPeer({"egress", spdlog::level::err, what}, "publishing {}: {}", what,
              std::string(sent.message()));
  }
}

void Publisher::SendHeartbeat() {
  const int64_t now_ns = options_.clock->NowNs();
  if (now_ns < next_heartbeat_ns_) return;
  next_heartbeat_ns_ = now_ns + kHeartbeatNs;
  kept_.Expire(now_ns);
  meters_.lost_messages += tokens_.num_lost_messages() - meters_.lost_messages.value();
  buffer_.clear();
  AppendHeartbeat({.epoch = options_.epoch,
                   .seq = batch_.seq,
                   .streams = targets_.size() - ended_streams_.size()},
                  &buffer_);
  Send(kHeartbeatTopic, "a heartbeat");
}

bool Publisher::Receive() {
  return aborts_.Receive(
      [this](std::string_view topic, std::string_view payload) { return Handle(topic, payload); });
}

absl::Status Publisher::Handle(std::string_view topic, std::string_view payload) {
  absl::Status problem = absl::InvalidArgumentError("neither \"abort\" nor \"alive\"");
  if (topic == kAliveTopic) {
    absl::StatusOr<SignOfLife> alive = DecodeSignOfLife(payload);
    problem = alive.status();
    if (alive.ok()) problem = Apply(*alive);
  } else if (topic == kAbortTopic) {
    absl::StatusOr<AbortRequest> request = DecodeAbortRequest(payload);
    problem = request.status();
    if (request.ok()) Apply(*request);
  }
  if (!problem.ok()) {
    LogOfPeer({"egress", spdlog::level::warn, "unreadable"},
              "a message on the aborts endpoint is refused: {}",
              Printable(std::string(problem.message())));
  }
  return problem;
}

absl::Status Publisher::Apply(const SignOfLife& alive) {
  if (alive.epoch != options_.epoch) return absl::OkStatus();
  bool is_another = false;
  absl::Status status = text_sides_.Hear(alive, &is_another);
  if (is_another) AbortUnwatched("was replaced, and their ids were not kept", false, alive.shard);
  return status;
}

void Publisher::AbortUnwatched(std::string_view why, bool are_all, const TextShard& shard) {
  size_t aborted = 0;
  for (auto& [stream, target] : targets_) {
    if (!target.needs_text_side || (!are_all && kept_.IsWhole(stream))) continue;
    if (!shard.Has(target.request_id)) continue;
    const std::shared_ptr<Session> session = target.session.lock();
    const bool had_ended = target.ended || session == nullptr;
    if (!had_ended && session->AbortSequence(target.sequence).ok()) ++aborted;
    Settle(&target);  // the text side that knew its text will say nothing
  }
  if (aborted == 0) return;
  const std::string which =
      shard.count == 1 ? "" : fmt::format(" of shard {}/{}", shard.index, shard.count);
  Log("egress").warn("the detokenizer{} {}: {} streams with stop strings are aborted", which, why,
                     aborted);
}

void Publisher::Apply(const AbortRequest& request) {
  if (request.epoch != options_.epoch) return;   // meant for a daemon that is gone
  if (request.kept_tokens > UINT32_MAX) return;  // no stream is that long
  const auto found = targets_.find(request.stream);
  if (found == targets_.end()) return;
  Target& target = found->second;
  // The text side cannot tell that rounds find the stop strings of a stream, whose end is theirs.
  if (!target.needs_text_side) return;
  const std::shared_ptr<Session> session = target.session.lock();
  if (session != nullptr && request.finish_reason != SPECD_FINISH_NONE) {
    session->FinishFromText(target.sequence, static_cast<FinishReason>(request.finish_reason),
                            static_cast<uint32_t>(request.kept_tokens));
  }
  Settle(&target);
}

std::string Publisher::AnswerAsk(std::string_view payload, uint32_t uid) {
  std::string reply;
  const absl::StatusOr<Ask> ask = DecodeAsk(payload);
  absl::StatusOr<TokenAnswer> answer = TokenAnswer();
  if (!ask.ok()) {
    answer = ask.status();
  } else if (ask->kind != AskKind::kAbort) {
    answer = kept_.Answer(*ask);
    if (answer.ok() && ask->kind == AskKind::kStreams) {
      for (const auto& [name, hash] : options_.tokenizers) {
        answer->profiles.push_back(name);
        answer->tokenizers.push_back(hash);
      }
    }
  } else if (absl::Status status = AbortRequested(ask->request_id, uid); !status.ok()) {
    answer = status;
  }
  if (answer.ok()) {
    answer->epoch = options_.epoch;
    answer->seq = batch_.seq;
    AppendAnswer(*answer, &reply);
  } else {
    AppendRefusal(answer.status(), &reply);
  }
  return reply;
}

absl::Status Publisher::AbortRequested(const std::string& request_id, uint32_t uid) {
  absl::Status status = absl::NotFoundError(
      fmt::format("rid = \"{}\" is the request id of no stream that runs", Printable(request_id)));
  running_.VisitFrom(request_id, 0, [&](uint64_t stream) {
    const Target& target = targets_.at(stream);
    const std::shared_ptr<Session> session = target.session.lock();
    const bool may_end = uid == ReplySocket::kNoUser || uid == 0 || uid == geteuid() ||
                         (session != nullptr && session->client().uid == uid);
    if (session != nullptr && may_end) status = session->AbortSequence(target.sequence);
    return session == nullptr;
  });
  return status;
}

}  // namespace specd
