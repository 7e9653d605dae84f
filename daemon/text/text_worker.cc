#include "daemon/text/text_worker.h"

#include <fmt/format.h>

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
  absl::StatusOr<std::unique_ptr<WaitSet>> waits = WaitSet::Make();
  if (!waits.ok()) return waits.status();
  return std::unique_ptr<TextWorker>(new TextWorker(
      options, {*std::move(tokens), *std::move(text), *std::move(aborts), *std::move(asks)},
      *std::move(waits)));
}

TextWorker::TextWorker(const Options& options, Sockets sockets, std::unique_ptr<WaitSet> waits)
    : options_(options),
      tokens_(std::move(sockets.tokens)),
      text_(std::move(sockets.text)),
      aborts_(std::move(sockets.aborts)),
      asks_(std::move(sockets.asks)),
      daemon_(options.context, options.ask_endpoint),
      waits_(std::move(waits)),
      kept_(options.keep),
      meters_(options.meters == nullptr ? own_meters_ : *options.meters),
      streams_(options.vocabularies, &meters_),
      instance_(DrawInstance()),
      awake_(kHearingNs / 4),
      last_heard_ns_(-kHearingNs) {
  waits_->Add(&tokens_);
  asks_.AddTo(waits_.get());
}

void TextWorker::Run() {
  while (!stop_.load(std::memory_order_relaxed) && !closed_) Step(kWait);
  const int64_t deadline_ns = awake_.now_ns() + kDrainNs;
  while (!closed_ && awake_.now_ns() < deadline_ns && Step(kWait)) {
  }
  Log("detok").info("{} streams, {} tokens, {} late, {} broken, {} events of unknown streams",
                    meters_.streams.value(), meters_.tokens.value(), meters_.late_tokens.value(),
                    meters_.broken_streams.value(), meters_.unknown_events.value());
}

bool TextWorker::Step(absl::Duration timeout) {
  awake_.Step(options_.clock->NowNs());
  ++meters_.beats;
  SendHeartbeats();
  if (Look()) return true;
  if (closed_ || timeout <= absl::ZeroDuration()) return false;
  waits_->Wait(timeout, [] { return false; });
  return Look();
}

bool TextWorker::Look() {
  const bool answered =
      asks_.Step([this](std::string_view ask, uint32_t) { return AnswerAsk(ask); });
  absl::StatusOr<bool> received = tokens_.Receive(&frames_, absl::ZeroDuration());
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
  if (is_caught_up_ && last_batch_seq_ >= quiet_until_) CountQuiet();
  if (!problem.ok()) {
    LogOfPeer({"detok", spdlog::level::err, "unreadable"}, "unreadable token event: {}",
              Printable(std::string(problem.message())));
  }
}

void TextWorker::Follow(uint64_t epoch, uint64_t seq) {
  last_heard_ns_ = awake_.now_ns();
  if (epoch != epoch_) {
    if (epoch_ != 0) {
      Log("detok").warn(
          "the daemon was restarted: {} streams end here, or go on if their engine does",
          streams_.num_live());
      streams_.Forget();
    }
    epoch_ = epoch;
    is_caught_up_ = false;
    CountQuiet();
    kept_ = KeptTexts(options_.keep);
  } else if (is_caught_up_ && seq > last_batch_seq_) {
    LogOfPeer({"detok", spdlog::level::warn, "lost"},
              "token messages {} .. {} were lost: the daemon is asked for them",
              last_batch_seq_ + 1, seq);
    is_caught_up_ = false;
    CountQuiet();
  }
  last_batch_seq_ = seq;
  if (!is_caught_up_) is_caught_up_ = CatchUp();
}

bool TextWorker::CatchUp() {
  replayed_.clear();
  absl::Status status = Replay({.kind = AskKind::kStreams});
  if (status.ok()) status = Replay({.kind = AskKind::kEnded});
  // Streams that are in neither answer have ended longer ago.
  for (const auto& [stream, tokens] : streams_.Offsets()) {
    if (!status.ok()) break;
    if (replayed_.contains(stream)) continue;
    status = Replay({.kind = AskKind::kFrom, .stream = stream, .offset = tokens});
    if (!absl::IsNotFound(status)) continue;
    Lose(stream, status);
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
  SendAsk(ask);
  while (true) {
    const absl::StatusOr<TokenAnswer> answer = ReceiveAnswer();
    if (absl::IsNotFound(answer.status()) && ask.kind != AskKind::kFrom && ask.offset > 0) {
      // The stream has gone since the page before. Those behind it are there.
      Lose(ask.stream, answer.status());
      ask = {.kind = ask.kind, .stream = ask.stream + 1};
      SendAsk(ask);
      continue;
    }
    if (!answer.ok()) return answer.status();
    if (answer->epoch != epoch_) return absl::UnavailableError("another daemon answers");
    if (absl::Status status = CheckTokenizers(*answer); !status.ok()) {
      Log("detok").error("{}", Printable(std::string(status.message())));
      closed_ = true;
      return status;
    }
    if (answer->next.has_value()) {
      ask.stream = answer->next->stream;
      ask.offset = answer->next->offset;
      SendAsk(ask);  // the daemon makes the next page while this one is applied
    }
    for (const TokenEvent& event : answer->events) {
      if (IsOfAnotherShard(event)) continue;
      replayed_.insert(event.stream);
      if (!streams_.Has(event.stream)) {
        if (kept_.HasEnded(event.stream)) continue;
        if (ask.kind == AskKind::kEnded) quiet_.emplace(event.stream, 0);
      }
      streams_.Apply(event, &texts_, &abort_requests_);
      GiveTexts(event.stream);
    }
    quiet_until_ = answer->seq;
    SendAborts();
    SendHeartbeats();  // a long answer is no silence
    if (!answer->next.has_value()) return absl::OkStatus();
  }
}

absl::Status TextWorker::CheckTokenizers(const TokenAnswer& answer) const {
  for (size_t i = 0; i < answer.profiles.size(); ++i) {
    const auto own = options_.tokenizers.find(answer.profiles[i]);
    const uint64_t theirs = answer.tokenizers[i];
    if (own == options_.tokenizers.end() || theirs == 0 || own->second == theirs) continue;
    return absl::InvalidArgumentError(fmt::format(
        "{}: the file here has the hash {:016x}, and the daemon's has {:016x}, so equal ids are "
        "other texts; start specd-detok with the file of the daemon",
        own->first.empty() ? "--tokenizer" : fmt::format("--profile={}", own->first), own->second,
        theirs));
  }
  return absl::OkStatus();
}

bool TextWorker::IsOfAnotherShard(const TokenEvent& event) const {
  if (options_.shard.count == 1) return false;
  return event.opening() != nullptr ? !options_.shard.Has(event.opening()->request_id)
                                    : !streams_.Has(event.stream);
}

bool TextWorker::AskForFork(const TokenEvent& opening) {
  const absl::Status status = Replay({.kind = AskKind::kFrom, .stream = opening.stream});
  if (status.ok()) return true;
  if (!absl::IsNotFound(status)) return false;
  streams_.Apply(opening, &texts_, &abort_requests_);
  return true;
}

void TextWorker::Lose(uint64_t stream, const absl::Status& why) {
  LogOfPeer({"detok", spdlog::level::err, "lost stream"}, "a text ends by an error: {}",
            Printable(std::string(why.message())));
  streams_.EndLost(stream, &texts_, &abort_requests_);
  SendAborts();
  GiveTexts(stream);
}

void TextWorker::SendAsk(const Ask& ask) {
  std::string payload;
  AppendAsk(ask, &payload);
  daemon_.Send(payload);
}

absl::StatusOr<TokenAnswer> TextWorker::ReceiveAnswer() {
  const absl::StatusOr<std::string> reply = daemon_.Receive(kAnswerTimeout);
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
    const bool is_replayed = event.end() != nullptr ? replayed_.erase(event.stream) > 0
                                                    : replayed_.contains(event.stream);
    if (IsOfAnotherShard(event)) continue;
    const bool is_here = streams_.Has(event.stream);
    // Its source is of another shard, or has ended.
    const StreamOpening* const opening = event.opening();
    const bool lacks_source =
        opening != nullptr && opening->forked_from != 0 && !streams_.Has(opening->forked_from);
    // An answer may have brought the whole stream already. If its text is not published, it is now,
    // where all of it is to come; otherwise it counts as lost, and readers ask.
    if (!is_here && is_replayed &&
        (opening == nullptr || lacks_source || quiet_.erase(event.stream) == 0)) {
      continue;
    }
    if (lacks_source && !is_here) {
      is_caught_up_ = AskForFork(event);
      if (!is_caught_up_) break;  // the next message asks for all
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
  const int64_t now_ns = options_.clock->NowNs();
  for (TextEvent& event : texts_) {
    kept_.Take(event, now_ns);
    event.epoch = epoch_;
    event.seq = ++seq_;
    buffer_.clear();
    AppendTextEvent(event, &buffer_);
    Publish(TextTopic(event.request_id), &event != &texts_.back());
  }
  texts_.clear();
}

void TextWorker::GiveTexts(uint64_t stream) {
  const auto quiet = quiet_.find(stream);
  if (quiet == quiet_.end()) return SendTexts();
  for (const TextEvent& event : texts_) kept_.Take(event, options_.clock->NowNs());
  quiet->second += texts_.size();
  texts_.clear();
}

void TextWorker::CountQuiet() {
  // Readers see numbers without messages as a loss, and ask.
  for (const auto& [stream, num_events] : quiet_) seq_ += num_events;
  quiet_.clear();
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
  meters_.lost_messages += text_.num_lost_messages() - meters_.lost_messages.value();
  buffer_.clear();
  AppendHeartbeat(
      {.epoch = epoch_, .seq = seq_, .streams = streams_.num_live(), .instance = instance_},
      &buffer_);
  Publish(kHeartbeatTopic);
  // A worker that does not hear the daemon must not report that it looks for stop strings.
  if (!is_caught_up_ || awake_.now_ns() - last_heard_ns_ >= kHearingNs) return;
  buffer_.clear();
  AppendSignOfLife({.epoch = epoch_, .instance = instance_, .shard = options_.shard}, &buffer_);
  Report(kAliveTopic);
}

void TextWorker::Publish(std::string_view topic, bool more_follow) {
  if (!text_.Send(topic, buffer_, more_follow).ok()) closed_ = true;
  meters_.bytes += topic.size() + buffer_.size();
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
