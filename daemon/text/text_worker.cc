#include "daemon/text/text_worker.h"

#include <array>
#include <random>
#include <string_view>
#include <utility>

#include "daemon/base/logging.h"

namespace specd {
namespace {

// A client waits for the first heartbeat to know that it is subscribed. A start therefore costs up
// to this period.
constexpr int64_t kHeartbeatNs = 200'000'000;
constexpr absl::Duration kWait = absl::Milliseconds(20);
// The daemon's publisher answers within milliseconds. Signs of life must go on meanwhile.
constexpr absl::Duration kAnswerTimeout = absl::Milliseconds(500);
// Five of the publisher's heartbeats, in time in which the worker looked.
constexpr int64_t kHearingNs = 1'000'000'000;
// The time to continue after Stop while token events keep coming.
constexpr int64_t kDrainNs = 2'000'000'000;

uint64_t DrawInstance() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextWorker>> TextWorker::Create(const Options& options) {
  absl::StatusOr<ZmqSocket> tokens =
      ZmqSocket::Make(options.context, ZmqKind::kSubscribe, ZmqOptions{});
  if (!tokens.ok()) return tokens.status();
  absl::StatusOr<PublishSocket> text = PublishSocket::Make(options.context, options.subscribers);
  if (!text.ok()) return text.status();
  absl::StatusOr<ZmqSocket> aborts = ZmqSocket::Make(options.context, ZmqKind::kPush, ZmqOptions{});
  if (!aborts.ok()) return aborts.status();
  absl::StatusOr<ReplySocket> asks = ReplySocket::Make(options.context, options.askers);
  if (!asks.ok()) return asks.status();
  for (const absl::Status& status :
       {text->Bind(options.text_endpoint), asks->Bind(options.text_ask_endpoint),
        tokens->Subscribe(kTokensTopic), tokens->Subscribe(kHeartbeatTopic),
        tokens->Connect(options.tokens_endpoint), aborts->Connect(options.aborts_endpoint)}) {
    if (!status.ok()) return status;
  }
  return std::unique_ptr<TextWorker>(new TextWorker(options, *std::move(tokens), *std::move(text),
                                                    *std::move(aborts), *std::move(asks)));
}

TextWorker::TextWorker(const Options& options, ZmqSocket tokens, PublishSocket text,
                       ZmqSocket aborts, ReplySocket asks)
    : options_(options),
      tokens_(std::move(tokens)),
      text_(std::move(text)),
      aborts_(std::move(aborts)),
      asks_(std::move(asks)),
      daemon_(options.context, options.ask_endpoint),
      kept_(options.keep),
      streams_(options.vocabularies),
      instance_(DrawInstance()),
      awake_(kHearingNs / 4),
      last_heard_ns_(-kHearingNs) {}

void TextWorker::Run() {
  while (!stop_.load(std::memory_order_relaxed) && !closed_) Step(kWait);
  const int64_t deadline_ns = awake_.now_ns() + kDrainNs;
  while (!closed_ && awake_.now_ns() < deadline_ns && Step(kWait)) {
  }
  const TextCounters& sums = counters();
  Log("detok").info("{} streams, {} tokens, {} late, {} broken, {} events of unknown streams",
                    sums.streams, sums.tokens, sums.late_tokens, sums.broken_streams,
                    sums.unknown_events);
}

bool TextWorker::Step(absl::Duration timeout) {
  awake_.Step(options_.clock->NowNs());
  SendHeartbeats();
  const bool answered = asks_.Step([this](std::string_view ask) { return AnswerAsk(ask); });
  absl::StatusOr<bool> received = tokens_.Receive(&frames_, timeout);
  if (!received.ok()) {
    closed_ = true;
    if (!absl::IsCancelled(received.status())) {
      Log("detok").error("receiving token events: {}", std::string(received.status().message()));
    }
    return false;
  }
  if (!*received) return answered;
  if (frames_.size() == 2) Handle(frames_[0], frames_[1]);
  return true;
}

void TextWorker::Handle(std::string_view topic, std::string_view payload) {
  absl::Status problem;
  if (topic == kHeartbeatTopic) {
    if (absl::StatusOr<Heartbeat> heartbeat = DecodeHeartbeat(payload); heartbeat.ok()) {
      Follow(heartbeat->epoch, heartbeat->seq);
    } else {
      problem = heartbeat.status();
    }
  } else if (absl::StatusOr<TokenBatch> batch = DecodeTokenBatch(payload); batch.ok()) {
    Follow(batch->epoch, batch->seq - 1);
    last_batch_seq_ = batch->seq;
    if (is_caught_up_) HandleBatch(*batch);
  } else {
    problem = batch.status();
  }
  if (!problem.ok()) {
    LogOfPeer({"detok", spdlog::level::err, "unreadable"}, "unreadable token event: {}",
              Printable(std::string(problem.message())));
  }
}

void TextWorker::Follow(uint64_t epoch, uint64_t seq) {
  last_heard_ns_ = awake_.now_ns();
  if (epoch != epoch_) {
    if (epoch_ != 0) {
      Log("detok").warn("the daemon was restarted: {} streams end here", streams_.num_live());
      streams_.EndAll(&texts_, &abort_requests_);
      abort_requests_.clear();  // their daemon is gone
      SendTexts();
    }
    epoch_ = epoch;
    is_caught_up_ = false;
    kept_ = KeptTexts(options_.keep);
  } else if (is_caught_up_ && seq > last_batch_seq_) {
    LogOfPeer({"detok", spdlog::level::warn, "lost"},
              "token messages {} .. {} were lost: the daemon is asked for them",
              last_batch_seq_ + 1, seq);
    is_caught_up_ = false;
  }
  last_batch_seq_ = seq;
  if (!is_caught_up_) is_caught_up_ = CatchUp();
}

bool TextWorker::CatchUp() {
  replayed_.clear();
  quiet_.clear();
  absl::Status status = Replay({.kind = AskKind::kStreams});
  if (status.ok()) status = Replay({.kind = AskKind::kEnded});
  // Streams that are in neither answer have ended longer ago.
  for (const auto& [stream, tokens] : streams_.Offsets()) {
    if (!status.ok()) break;
    if (replayed_.contains(stream)) continue;
    status = Replay({.kind = AskKind::kFrom, .stream = stream, .offset = tokens});
    if (!absl::IsNotFound(status)) continue;
    LogOfPeer({"detok", spdlog::level::err, "lost stream"}, "a stream ends by an error: {}",
              Printable(std::string(status.message())));
    streams_.EndLost(stream, &texts_, &abort_requests_);
    SendAborts();
    SendTexts();
    status = absl::OkStatus();
  }
  if (!status.ok()) {
    LogOfPeer({"detok", spdlog::level::err, "unanswered"},
              "the daemon says nothing of its streams, and is asked again: {}",
              Printable(std::string(status.message())));
    return false;
  }
  // Under a new number of ours the daemon aborts streams that it could not name.
  instance_ = DrawInstance();
  return true;
}

absl::Status TextWorker::Replay(Ask ask) {
  while (true) {
    const absl::StatusOr<TokenAnswer> answer = AskDaemon(ask);
    if (!answer.ok()) return answer.status();
    if (answer->epoch != epoch_) return absl::UnavailableError("another daemon answers");
    for (const TokenEvent& event : answer->events) {
      replayed_.insert(event.stream);
      if (!streams_.Has(event.stream)) {
        if (kept_.HasEnded(event.stream)) continue;
        if (ask.kind == AskKind::kEnded) quiet_.insert(event.stream);
      }
      streams_.Apply(event, &texts_, &abort_requests_);
      quiet_.contains(event.stream) ? KeepTexts() : SendTexts();
    }
    SendAborts();
    SendHeartbeats();  // a long answer is no silence
    if (!answer->next.has_value()) return absl::OkStatus();
    ask.stream = answer->next->stream;
    ask.offset = answer->next->offset;
  }
}

absl::StatusOr<TokenAnswer> TextWorker::AskDaemon(const Ask& ask) {
  std::string payload;
  AppendAsk(ask, &payload);
  const absl::StatusOr<std::string> reply = daemon_.Ask(payload, kAnswerTimeout);
  if (!reply.ok()) return reply.status();
  return DecodeTokenAnswer(*reply);
}

std::string TextWorker::AnswerAsk(std::string_view payload) const {
  std::string reply;
  const absl::StatusOr<Ask> ask = DecodeAsk(payload);
  absl::StatusOr<TextAnswer> answer =
      absl::UnavailableError("the text side has not heard its daemon yet; ask again");
  if (!ask.ok()) {
    answer = ask.status();
  } else if (ask->kind == AskKind::kAbort) {
    answer = absl::NotFoundError("the daemon's ask endpoint aborts streams, this one does not");
  } else if (is_caught_up_) {
    answer = kept_.Answer(*ask);
  }
  if (answer.ok()) {
    answer->epoch = epoch_;
    answer->seq = seq_;
    AppendAnswer(*answer, &reply);
  } else {
    AppendRefusal(answer.status(), &reply);
  }
  return reply;
}

void TextWorker::HandleBatch(const TokenBatch& batch) {
  for (const TokenEvent& event : batch.events) {
    // An answer may have brought the whole stream already. If its text is not published, it is now.
    if (!streams_.Has(event.stream) && kept_.HasEnded(event.stream) &&
        quiet_.erase(event.stream) == 0) {
      continue;
    }
    streams_.Apply(event, &texts_, &abort_requests_);
  }
  // Aborts come first: an engine that stops a round earlier saves more than a client that reads
  // later.
  SendAborts();
  SendTexts();
}

void TextWorker::SendTexts() {
  for (TextEvent& event : texts_) {
    kept_.Take(event, options_.clock->NowNs());
    event.epoch = epoch_;
    event.seq = ++seq_;
    buffer_.clear();
    AppendTextEvent(event, &buffer_);
    Publish(TextTopic(event.request_id));
  }
  texts_.clear();
}

void TextWorker::KeepTexts() {
  for (const TextEvent& event : texts_) kept_.Take(event, options_.clock->NowNs());
  texts_.clear();
}

void TextWorker::SendAborts() {
  for (AbortRequest& request : abort_requests_) {
    request.epoch = epoch_;
    buffer_.clear();
    AppendAbortRequest(request, &buffer_);
    Report(kAbortTopic);
  }
  abort_requests_.clear();
}

void TextWorker::SendHeartbeats() {
  const int64_t now_ns = options_.clock->NowNs();
  if (now_ns < next_heartbeat_ns_) return;
  next_heartbeat_ns_ = now_ns + kHeartbeatNs;
  kept_.Expire(now_ns);
  buffer_.clear();
  AppendHeartbeat({.epoch = epoch_, .seq = seq_, .streams = streams_.num_live()}, &buffer_);
  Publish(kHeartbeatTopic);
  // A worker that does not hear the daemon must not report that it looks for stop strings.
  if (!is_caught_up_ || awake_.now_ns() - last_heard_ns_ >= kHearingNs) return;
  buffer_.clear();
  AppendSignOfLife({.epoch = epoch_, .instance = instance_}, &buffer_);
  Report(kAliveTopic);
}

void TextWorker::Publish(std::string_view topic) {
  if (!text_.Send(topic, buffer_).ok()) closed_ = true;
}

void TextWorker::Report(std::string_view topic) {
  const std::array<std::string_view, 2> frames = {topic, buffer_};
  absl::StatusOr<bool> sent = aborts_.Send(frames);
  if (!sent.ok()) {
    closed_ = true;
  } else if (!*sent && topic == kAbortTopic) {
    LogOfPeer({"detok", spdlog::level::err, "abort"},
              "an abort could not be sent: the engine will run to its length");
  }
}

}  // namespace specd
