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
constexpr absl::Duration kWait = absl::Milliseconds(50);
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
  for (const absl::Status& status :
       {text->Bind(options.text_endpoint), tokens->Subscribe(kTokensTopic),
        tokens->Subscribe(kHeartbeatTopic), tokens->Connect(options.tokens_endpoint),
        aborts->Connect(options.aborts_endpoint)}) {
    if (!status.ok()) return status;
  }
  return std::unique_ptr<TextWorker>(
      new TextWorker(options, *std::move(tokens), *std::move(text), *std::move(aborts)));
}

TextWorker::TextWorker(const Options& options, ZmqSocket tokens, PublishSocket text,
                       ZmqSocket aborts)
    : options_(options),
      tokens_(std::move(tokens)),
      text_(std::move(text)),
      aborts_(std::move(aborts)),
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
  absl::StatusOr<bool> received = tokens_.Receive(&frames_, timeout);
  if (!received.ok()) {
    closed_ = true;
    if (!absl::IsCancelled(received.status())) {
      Log("detok").error("receiving token events: {}", std::string(received.status().message()));
    }
    return false;
  }
  if (!*received) return false;
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
    HandleBatch(*batch);
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
    last_batch_seq_ = seq;
  } else if (seq > last_batch_seq_) {
    // The streams of the lost messages are not known.
    LogOfPeer({"detok", spdlog::level::err, "lost"},
              "token messages {} .. {} were lost: {} streams end here", last_batch_seq_ + 1, seq,
              streams_.num_live());
    streams_.EndAll(&texts_, &abort_requests_);
    // If an opening was lost, only the daemon knows its stream. Under a new instance number of ours
    // the daemon aborts every stream whose stop strings no text side looks for.
    instance_ = DrawInstance();
    SendAborts();
    SendTexts();
    last_batch_seq_ = seq;
  }
}

void TextWorker::HandleBatch(const TokenBatch& batch) {
  for (const TokenEvent& event : batch.events) streams_.Apply(event, &texts_, &abort_requests_);
  // Aborts come first: an engine that stops a round earlier saves more than a client that reads
  // later.
  SendAborts();
  SendTexts();
}

void TextWorker::SendTexts() {
  for (TextEvent& event : texts_) {
    event.epoch = epoch_;
    event.seq = ++seq_;
    buffer_.clear();
    AppendTextEvent(event, &buffer_);
    Publish(TextTopic(event.request_id));
  }
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
  buffer_.clear();
  AppendHeartbeat({.epoch = epoch_, .seq = seq_, .streams = streams_.num_live()}, &buffer_);
  Publish(kHeartbeatTopic);
  // A worker that does not hear the daemon must not report that it looks for stop strings.
  if (awake_.now_ns() - last_heard_ns_ >= kHearingNs) return;
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
